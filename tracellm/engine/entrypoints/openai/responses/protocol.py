"""Models of `/v1/responses`, with the names, types and defaults of OpenAI's API and vLLM's additions.

`http_requests.py` validates a body against `ResponsesRequest`. `to_chat_request` converts it, so that prompts, tools,
formats and sampling parameters are those of a chat request.

vLLM: `ResponsesRequest` and `ResponsesResponse` of vllm/entrypoints/openai/protocol.py; parameters of sampling as in
version 0.32. There the other models are those of the `openai` package. Left out: tools that the server runs, prompt
templates, messages of gpt-oss.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tracellm.engine.config.errors import InvalidRequestError, shorten
from tracellm.engine.entrypoints.openai.protocol import (
    MAX_ID_LENGTH,
    ChatCompletionLogProbsContent,
    ChatCompletionRequest,
    Items,
    OpenAIBaseModel,
    ReasoningEffort,
    random_uuid,
    unix_time,
)
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = [
    "FunctionTool",
    "InputTokensDetails",
    "OutputTokensDetails",
    "ResponseError",
    "ResponseFunctionToolCall",
    "ResponseOutputItem",
    "ResponseOutputMessage",
    "ResponseOutputText",
    "ResponseReasoningItem",
    "ResponseReasoningText",
    "ResponseStatus",
    "ResponseUsage",
    "ResponsesRequest",
    "ResponsesResponse",
]

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority"]
Include = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
]

_CHOICES = ("none", "auto", "required")
_MAX_ITEMS = 10_000
"""Maximum items of `input`; the event loop works on each."""
_SHARED_FIELDS = (
    *("model", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "logit_bias"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos", "skip_special_tokens"),
    *("include_stop_str_in_output", "structured_outputs", "vllm_xargs", "stream", "user", "priority", "cache_salt"),
    *("include_reasoning", "parallel_tool_calls"),
)
"""Fields with the same name and meaning in a chat request."""


# -- request ----------------------------------------------------------------------------------------------------------


class FunctionTool(OpenAIBaseModel):
    """Function offered to the model."""

    type: Literal["function"]
    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class ResponseTextFormat(OpenAIBaseModel):
    """Required format of the generated text; `json_schema` has a `name` and a `schema`."""

    type: Literal["text", "json_object", "json_schema"]

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if self.type == "json_schema":
            for name, kind in (("name", str), ("schema", dict)):
                if not isinstance((self.model_extra or {}).get(name), kind):
                    raise ValueError(f"Field required: a format of type json_schema has a `{name}`")
        return self


class ResponseTextConfig(OpenAIBaseModel):
    """Options of the generated text. The verbosity is not used, as in vLLM."""

    format: ResponseTextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(OpenAIBaseModel):
    """Options of the reasoning."""

    effort: ReasoningEffort | None = None
    """Amount of reasoning, used like `reasoning_effort` of a chat."""
    summary: str | None = None
    """Not used: there are no summaries."""


class ResponsesRequest(OpenAIBaseModel):
    """Body of `POST /v1/responses`."""

    background: bool | None = False
    include: list[Include] | None = None
    input: str | Items[dict[str, Any]]
    """A user's message, or items of a conversation: see `utils.construct_input_messages`."""
    instructions: str | None = None
    """System message of this response; not kept for later ones."""
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    """Limit of tools that the server runs, of which there are none."""
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    reasoning: Reasoning | None = None
    service_tier: ServiceTier = "auto"
    store: bool | None = True
    stream: bool | None = False
    temperature: float | None = None
    text: ResponseTextConfig | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] = "auto"
    tools: Items[FunctionTool] = Field(default_factory=list)
    top_logprobs: int | None = 0
    """Used with `message.output_text.logprobs` in `include`."""
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    user: str | None = None

    # vLLM's own
    request_id: str = Field(default_factory=lambda: f"resp_{random_uuid()}", max_length=MAX_ID_LENGTH)
    """Id of the response, and of the request in the engine."""
    priority: int = 0
    cache_salt: str | None = None
    previous_input_messages: Items[Any] | None = None
    """Messages of gpt-oss; refused."""
    enable_response_messages: bool = False
    """Return messages of gpt-oss; refused."""
    include_reasoning: bool = True
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | Items[str] | None = None
    stop_token_ids: Items[int] | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    structured_outputs: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_before(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get("prompt") is not None:
            raise ValueError("prompt template is not supported")
        if data.get("background") and not data.get("store", True):
            raise ValueError("background can only be used when `store` is true")
        return data

    @field_validator("input", mode="plain")
    @classmethod
    def _check_input(cls, value: Any) -> Any:
        if isinstance(value, list) and len(value) > _MAX_ITEMS:
            raise ValueError(f"may hold at most {_MAX_ITEMS} items")
        if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
            return value
        raise ValueError("Input should be a valid string or a list of items, which are JSON objects")

    @field_validator("tool_choice", mode="plain")
    @classmethod
    def _check_tool_choice(cls, value: Any) -> Any:
        if isinstance(value, str) and value in _CHOICES:
            return value
        if not isinstance(value, dict):
            raise ValueError("Input should be 'none', 'auto' or 'required', or a function")
        if value.get("type") != "function" or not isinstance(value.get("name"), str):
            raise ValueError('Input should be {"type": "function", "name": ...}; other tools are not supported')
        return value

    def is_include_output_logprobs(self) -> bool:
        """Return whether the response has log probabilities of its text."""
        return "message.output_text.logprobs" in (self.include or ())

    def field_of(self, param: str) -> str:
        """Return the field of the request that gives a sampling parameter its value, for messages."""
        match param:
            case "max_tokens":
                return "max_output_tokens"
            case "logprobs":
                return "top_logprobs"
            case "structured_outputs" if self.tools and self.tool_choice not in ("none", "auto"):
                return "tools"
            case "structured_outputs" if self._response_format() is not None:
                return "text"
        return param

    def to_chat_request(self, messages: list[dict[str, Any]]) -> ChatCompletionRequest:
        """Return the chat request with the same parameters, for a conversation.

        Raises:
            InvalidRequestError: The tools or the format contradict each other.
            pydantic.ValidationError: A field is invalid in a chat request.
        """
        fields = {name: value for name in _SHARED_FIELDS if (value := getattr(self, name)) is not None}
        if self.is_include_output_logprobs():
            num_top = self.top_logprobs or 0
            if num_top < -1:
                raise InvalidRequestError(f"logprobs must be non-negative or -1, got {num_top}.")
            fields |= {"logprobs": True, "top_logprobs": num_top}
        if self.tools:
            fields |= {"tools": [_chat_tool(tool) for tool in self.tools], "tool_choice": self._chat_tool_choice()}
        elif self.tool_choice not in ("auto", "none"):
            raise InvalidRequestError(
                "Tool choice 'required' must be specified with 'tools' parameter."
                if self.tool_choice == "required"
                else "Tool choice 'function' not found in 'tools' parameter."
            )
        if (response_format := self._response_format()) is not None:
            if self.structured_outputs is not None:
                raise InvalidRequestError("Cannot specify both structured_outputs and text.format: keep one of them.")
            fields["response_format"] = response_format
        fields["reasoning_effort"] = None if self.reasoning is None else self.reasoning.effort
        return ChatCompletionRequest(messages=messages, chat_template_kwargs=self.chat_template_kwargs, **fields)

    def _chat_tool_choice(self) -> str | dict[str, Any]:
        if isinstance(self.tool_choice, str):
            return self.tool_choice
        name = self.tool_choice["name"]
        if name not in [tool.name for tool in self.tools]:
            raise InvalidRequestError(f"Tool {shorten(name)} has not been passed in `tools`.")
        return {"type": "function", "function": {"name": name}}

    def _response_format(self) -> dict[str, Any] | None:
        if self.text is None or self.text.format is None or self.text.format.type == "text":
            return None
        if self.text.format.type == "json_object":
            return {"type": "json_object"}
        return {"type": "json_schema", "json_schema": self.text.format.model_extra}


def _chat_tool(tool: FunctionTool) -> dict[str, Any]:
    function = tool.model_dump(exclude_unset=True, exclude={"type"})
    return {"type": "function", "function": function}


# -- output items -----------------------------------------------------------------------------------------------------


class ResponseOutputText(OpenAIBaseModel):
    """Text of a message."""

    annotations: list[Any] = Field(default_factory=list)
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[ChatCompletionLogProbsContent] | None = None
    """One entry per token, if the request includes them."""


class ResponseOutputMessage(OpenAIBaseModel):
    """Generated message."""

    id: str = Field(default_factory=lambda: f"msg_{random_uuid()}")
    content: list[ResponseOutputText]
    role: Literal["assistant"] = "assistant"
    status: ResponseStatus = "completed"
    type: Literal["message"] = "message"


class ResponseReasoningText(OpenAIBaseModel):
    """Text of the reasoning."""

    text: str
    type: Literal["reasoning_text"] = "reasoning_text"


class ResponseReasoningItem(OpenAIBaseModel):
    """Reasoning before the message or the calls."""

    id: str = Field(default_factory=lambda: f"rs_{random_uuid()}")
    summary: list[Any] = Field(default_factory=list)
    type: Literal["reasoning"] = "reasoning"
    content: list[ResponseReasoningText] | None = None
    encrypted_content: None = None
    status: ResponseStatus | None = None


class ResponseFunctionToolCall(OpenAIBaseModel):
    """Call of a function by the model."""

    arguments: str
    """JSON, as the model wrote it: it may be invalid, or not of the function's schema."""
    call_id: str
    """Id that the function's output refers to."""
    name: str
    type: Literal["function_call"] = "function_call"
    id: str = Field(default_factory=lambda: f"fc_{random_uuid()}")
    status: ResponseStatus = "completed"

    @field_validator("call_id")
    @classmethod
    def _convert_call_id(cls, value: str) -> str:
        """Convert a random id of a chat's call to this API's form."""
        return value.replace("chatcmpl-tool-", "call_")


ResponseOutputItem = ResponseReasoningItem | ResponseOutputMessage | ResponseFunctionToolCall


# -- response ---------------------------------------------------------------------------------------------------------


class IncompleteDetails(OpenAIBaseModel):
    """Reason why a response ended early."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseError(OpenAIBaseModel):
    """Reason why a response failed in the background. vLLM has none."""

    code: Literal["server_error"] = "server_error"
    message: str


class InputTokensDetails(OpenAIBaseModel):
    """Details of `ResponseUsage.input_tokens`; the turns are those of tools that the server runs."""

    cached_tokens: int
    """Prompt tokens found in the prefix cache."""
    input_tokens_per_turn: list[int] = Field(default_factory=list)
    cached_tokens_per_turn: list[int] = Field(default_factory=list)


class OutputTokensDetails(OpenAIBaseModel):
    """Details of `ResponseUsage.output_tokens`."""

    reasoning_tokens: int = 0
    tool_output_tokens: int = 0
    output_tokens_per_turn: list[int] = Field(default_factory=list)
    tool_output_tokens_per_turn: list[int] = Field(default_factory=list)


class ResponseUsage(OpenAIBaseModel):
    """Token counts of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponsesResponse(OpenAIBaseModel):
    """Response of `/v1/responses`, at any stage."""

    id: str
    created_at: int = Field(default_factory=unix_time)
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    metadata: dict[str, str] | None = None
    model: str
    object: Literal["response"] = "response"
    output: list[ResponseOutputItem]
    parallel_tool_calls: bool
    temperature: float
    tool_choice: str | dict[str, Any]
    tools: list[FunctionTool]
    top_p: float
    background: bool
    max_output_tokens: int
    max_tool_calls: int | None = None
    previous_response_id: str | None = None
    prompt: None = None
    reasoning: Reasoning | None = None
    service_tier: ServiceTier
    status: ResponseStatus
    text: ResponseTextConfig | None = None
    top_logprobs: int | None = None
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None = None
    user: str | None = None
    input_messages: None = None
    output_messages: None = None

    @classmethod
    def from_request(
        cls,
        request: ResponsesRequest,
        sampling_params: SamplingParams,
        model_name: str,
        created_time: int,
        output: list[ResponseOutputItem],
        status: ResponseStatus,
        usage: ResponseUsage | None = None,
    ) -> Self:
        """Return the response to a request; its parameters are those that the engine uses."""
        return cls(
            id=request.request_id,
            created_at=created_time,
            incomplete_details=IncompleteDetails() if status == "incomplete" else None,
            instructions=request.instructions,
            metadata=request.metadata,
            model=model_name,
            output=output,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            temperature=sampling_params.temperature,
            tool_choice=request.tool_choice,
            tools=request.tools,
            top_p=sampling_params.top_p,
            background=bool(request.background),
            max_output_tokens=sampling_params.max_tokens or 0,
            max_tool_calls=request.max_tool_calls,
            previous_response_id=request.previous_response_id,
            reasoning=request.reasoning,
            service_tier=request.service_tier,
            status=status,
            text=request.text,
            top_logprobs=sampling_params.logprobs,
            truncation=request.truncation or "disabled",
            usage=usage,
            user=request.user,
        )
