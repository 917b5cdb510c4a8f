"""`/v1/chat/completions`: a conversation, and the answer to it, at once or in chunks.

vLLM: vllm/entrypoints/openai/protocol.py::ChatCompletionRequest and those after it. Left out: tool calls in answers,
reasoning, audio; their fields are there and stay empty.
"""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tracellm.engine.entrypoints.openai.protocol.base import OpenAIBaseModel, UsageInfo, now, random_uuid
from tracellm.engine.entrypoints.openai.protocol.sampling import SamplingFields
from tracellm.engine.frontend.logprobs import Logprob
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = [
    "ChatCompletionLogProb",
    "ChatCompletionLogProbs",
    "ChatCompletionLogProbsContent",
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "ChatCompletionResponseChoice",
    "ChatCompletionResponseStreamChoice",
    "ChatCompletionStreamResponse",
    "ChatCompletionToolsParam",
    "ChatMessage",
    "DeltaMessage",
]


class FunctionDefinition(OpenAIBaseModel):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatCompletionToolsParam(OpenAIBaseModel):
    """A tool, for the chat template."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class ChatCompletionRequest(SamplingFields):
    """A conversation to go on with."""

    messages: list[dict[str, Any]]
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    """The newer name of `max_tokens`; it wins where both are given."""
    tools: list[ChatCompletionToolsParam] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = "none"
    parallel_tool_calls: bool | None = False
    reasoning_effort: Literal["low", "medium", "high"] | None = None
    include_reasoning: bool = True
    echo: bool = False
    """Begin the answer with the last message, if that has the same role."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None

    not_here: ClassVar[tuple[str, ...]] = (*SamplingFields.not_here, "mm_processor_kwargs")

    @model_validator(mode="before")
    @classmethod
    def _tools_mean_auto(cls, data: Any) -> Any:
        """Tools without a `tool_choice` may be called, or not."""
        if isinstance(data, dict) and "tool_choice" not in data and data.get("tools"):
            return {**data, "tool_choice": "auto"}
        return data

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("`top_logprobs` needs `logprobs=true`.")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("`continue_final_message` needs `add_generation_prompt=false`.")
        if self.tool_choice not in (None, "none") and not self.tools:
            raise ValueError("`tool_choice` needs `tools`.")
        return self

    def to_sampling_params(self, max_tokens: int, default_sampling_params: dict[str, Any]) -> SamplingParams:
        """As `_sampling_params`; with `echo`, as many log probabilities of the prompt as of the answer."""
        prompt_logprobs = self.prompt_logprobs
        if prompt_logprobs is None and self.echo:
            prompt_logprobs = self.top_logprobs
        logprobs = self.top_logprobs if self.logprobs else None
        return self._sampling_params(max_tokens, logprobs, prompt_logprobs, default_sampling_params)


class ChatMessage(OpenAIBaseModel):
    """The answer."""

    role: str
    content: str | None = None
    refusal: str | None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[Any] = Field(default_factory=list)
    reasoning: str | None = None
    reasoning_content: str | None = None


class ChatCompletionLogProb(OpenAIBaseModel):
    """How likely a token was; -9999 stands for minus infinity, which JSON does not have."""

    token: str
    logprob: float = -9999.0
    bytes: list[int] | None = None


class ChatCompletionLogProbsContent(ChatCompletionLogProb):
    """The same for a token of the answer, with the likeliest ones in its place."""

    top_logprobs: list[ChatCompletionLogProb] = Field(default_factory=list)


class ChatCompletionLogProbs(OpenAIBaseModel):
    """One entry for each token of the answer."""

    content: list[ChatCompletionLogProbsContent] | None = None


class ChatCompletionResponseChoice(OpenAIBaseModel):
    """One of the `n` answers."""

    index: int
    message: ChatMessage
    logprobs: ChatCompletionLogProbs | None = None
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None
    """The stop string or token that ended it."""
    token_ids: list[int] | None = None


class ChatCompletionResponse(OpenAIBaseModel):
    """All answers."""

    id: str = Field(default_factory=lambda: f"chatcmpl-{random_uuid()}")
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(default_factory=now)
    model: str
    choices: list[ChatCompletionResponseChoice]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: UsageInfo
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    prompt_token_ids: list[int] | None = None
    kv_transfer_params: None = None


class DeltaMessage(OpenAIBaseModel):
    """What is new of an answer."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] = Field(default_factory=list)


class ChatCompletionResponseStreamChoice(OpenAIBaseModel):
    """What is new of one of the `n` answers."""

    index: int
    delta: DeltaMessage
    logprobs: ChatCompletionLogProbs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletionStreamResponse(OpenAIBaseModel):
    """A chunk of the stream."""

    id: str = Field(default_factory=lambda: f"chatcmpl-{random_uuid()}")
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int = Field(default_factory=now)
    model: str
    choices: list[ChatCompletionResponseStreamChoice]
    usage: UsageInfo | None = None
    prompt_token_ids: list[int] | None = None
