"""`/v1/completions`: prompts, and how they go on, at once or in chunks.

vLLM: vllm/entrypoints/openai/protocol.py::CompletionRequest and those after it. Left out: prompt embeddings.
"""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from tracellm.engine.entrypoints.openai.protocol.base import OpenAIBaseModel, UsageInfo, now, random_uuid
from tracellm.engine.entrypoints.openai.protocol.sampling import SamplingFields
from tracellm.engine.frontend.logprobs import Logprob
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = [
    "CompletionLogProbs",
    "CompletionRequest",
    "CompletionResponse",
    "CompletionResponseChoice",
    "CompletionResponseStreamChoice",
    "CompletionStreamResponse",
]


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _are_texts(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


class CompletionRequest(SamplingFields):
    """One prompt or several."""

    prompt: str | list[str] | list[int] | list[list[int]] | None = None
    """A text, a list of texts, token ids, or a list of such lists."""
    echo: bool | None = False
    """Begin the output with the prompt."""
    logprobs: int | None = None
    max_tokens: int | None = 16
    suffix: str | None = None
    add_special_tokens: bool = True
    prompt_embeds: Any = None

    not_here: ClassVar[tuple[str, ...]] = (*SamplingFields.not_here, "suffix", "prompt_embeds")

    @field_validator("prompt", mode="wrap")
    @classmethod
    def _prompt_forms(cls, value: Any, handler: Any) -> Any:
        """One message in place of one for each form that the prompt does not have; and ids are not checked twice."""
        if value is None or isinstance(value, str) or (value and _is_ids(value)):
            return value
        if isinstance(value, list) and (_are_texts(value) or all(_is_ids(item) for item in value)) and value:
            return value
        raise ValueError("must be a text, a list of texts, a list of token ids, or a list of such lists, none empty.")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.prompt is None or self.prompt == "":
            raise ValueError("`prompt` must be given, and not be empty.")
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError(f"`logprobs` must be at least 0, got {self.logprobs}.")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or token ids."""
        prompt: Any = self.prompt
        return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt

    @property
    def only_echo(self) -> bool:
        """Nothing is wanted but the prompt, for its log probabilities; one token is generated and dropped."""
        return bool(self.echo) and self.max_tokens == 0

    def to_sampling_params(self, max_tokens: int, default_sampling_params: dict[str, Any]) -> SamplingParams:
        """As `_sampling_params`; with `echo`, as many log probabilities of the prompt as of the output."""
        prompt_logprobs = self.prompt_logprobs
        if prompt_logprobs is None and self.echo:
            prompt_logprobs = self.logprobs
        most = 1 if self.only_echo else max_tokens
        return self._sampling_params(most, self.logprobs, prompt_logprobs, default_sampling_params)


class CompletionLogProbs(OpenAIBaseModel):
    """Lists with one entry for each token."""

    text_offset: list[int] = Field(default_factory=list)
    """Where the token begins in the text, in characters."""
    token_logprobs: list[float | None] = Field(default_factory=list)
    tokens: list[str] = Field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = Field(default_factory=list)


class CompletionResponseChoice(OpenAIBaseModel):
    """One continuation; those of the first prompt come first."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    """The stop string or token that ended it."""
    token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionResponse(OpenAIBaseModel):
    """All continuations."""

    id: str = Field(default_factory=lambda: f"cmpl-{random_uuid()}")
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=now)
    model: str
    choices: list[CompletionResponseChoice]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: UsageInfo
    kv_transfer_params: None = None


class CompletionResponseStreamChoice(OpenAIBaseModel):
    """What is new of one continuation."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class CompletionStreamResponse(OpenAIBaseModel):
    """A chunk of the stream."""

    id: str = Field(default_factory=lambda: f"cmpl-{random_uuid()}")
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=now)
    model: str
    choices: list[CompletionResponseStreamChoice]
    usage: UsageInfo | None = None
