"""Request and response models of the server, with the names, types and defaults of OpenAI's API and vLLM's additions.

`http_requests.py` validates a request's body against these models before a serving class handles it. Validation covers
the types of JSON, where `"5"` passes for 5, as in vLLM. `SamplingParams` then checks the values.

Models of other routes are in tokenize/, responses/, ../pooling/ (protocol.py of each), and tool_protocol.py.

vLLM: vllm/entrypoints/openai/protocol.py. Left out: audio, prompt embeddings. Fields for audio in responses exist and
stay empty.
"""

import json
import time
import uuid
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, field_validator, model_validator

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.beam_search import BeamSearchParams
from tracellm.engine.entrypoints.openai.tool_protocol import ChatCompletionToolsParam, DeltaToolCall, ToolCall
from tracellm.engine.frontend.logprobs import Logprob
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

__all__ = [
    "INT64_LIMIT",
    "MAX_ID_LENGTH",
    "ChatCompletionLogProb",
    "ChatCompletionLogProbs",
    "ChatCompletionLogProbsContent",
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "ChatCompletionResponseChoice",
    "ChatCompletionResponseStreamChoice",
    "ChatCompletionStreamResponse",
    "ChatMessage",
    "CompletionLogProbs",
    "CompletionRequest",
    "CompletionResponse",
    "CompletionResponseChoice",
    "CompletionResponseStreamChoice",
    "CompletionStreamResponse",
    "DeltaMessage",
    "ErrorInfo",
    "ErrorResponse",
    "Items",
    "ModelCard",
    "ModelList",
    "ModelPermission",
    "OpenAIBaseModel",
    "PromptTokenUsageInfo",
    "ReasoningEffort",
    "SamplingRequest",
    "UsageInfo",
    "check_prompts",
    "random_uuid",
    "unix_time",
]

MAX_ID_LENGTH = 256
"""Maximum characters of a request id chosen by the client."""
_MAX_STRINGS = 1024
"""Maximum number of `stop` strings or `bad_words`; each is matched at every token."""
_MAX_BAD_CHARACTERS = 16_384
"""Maximum characters of all `bad_words`, which are tokenized while other requests wait."""
INT64_LIMIT = 2**63
_FORMATS = ("structural_tag", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
"""Fields that are a constraint each."""


class _FailFast(FailFast):
    __hash__ = object.__hash__  # a union of types hashes their annotations


T = TypeVar("T")
Items = Annotated[list[T], _FailFast()]
"""List in a request; its first invalid item is reported, and the others are not checked."""


def random_uuid() -> str:
    """Return 32 random hexadecimal digits, for ids."""
    return uuid.uuid4().hex


def unix_time() -> int:
    """Return the Unix time in whole seconds, for `created`."""
    return int(time.time())


# -- shared by all endpoints ------------------------------------------------------------------------------------------


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class OpenAIBaseModel(BaseModel):
    """Base class of all models. Unknown fields are ignored, since a client may use a newer API."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ErrorInfo(OpenAIBaseModel):
    """Details of an error."""

    message: str
    type: str
    """Error class, such as `BadRequestError`."""
    param: str | None = None
    """Invalid field of the request, or None. Always None in vLLM."""
    code: int
    """HTTP status; also sent within a stream, whose response began with status 200."""


class ErrorResponse(OpenAIBaseModel):
    """Body of every error response."""

    error: ErrorInfo


class ModelPermission(OpenAIBaseModel):
    """Permissions for a model; a former part of OpenAI's API that vLLM keeps."""

    id: str = Field(default_factory=lambda: f"modelperm-{random_uuid()}")
    object: str = "model_permission"
    created: int = Field(default_factory=unix_time)
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: str | None = None
    is_blocking: bool = False


class ModelCard(OpenAIBaseModel):
    """Served model name."""

    id: str
    object: str = "model"
    created: int = Field(default_factory=unix_time)
    owned_by: str = "tracellm"
    root: str | None = None
    """Model as given on the command line."""
    parent: str | None = None
    max_model_len: int | None = None
    """Maximum tokens of prompt and output together."""
    permission: list[ModelPermission] = Field(default_factory=list)


class ModelList(OpenAIBaseModel):
    """Response of `/v1/models`."""

    object: str = "list"
    data: list[ModelCard] = Field(default_factory=list)


class PromptTokenUsageInfo(OpenAIBaseModel):
    """Details of `UsageInfo.prompt_tokens`."""

    cached_tokens: int | None = None
    """Prompt tokens found in the prefix cache."""


class UsageInfo(OpenAIBaseModel):
    """Token counts of a request."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptTokenUsageInfo | None = None


class StreamOptions(OpenAIBaseModel):
    """Usage reporting in a stream."""

    include_usage: bool | None = True
    """Send a last chunk with the usage."""
    continuous_usage_stats: bool | None = False
    """Send the usage so far in every chunk; needs `include_usage`."""


# -- sampling ---------------------------------------------------------------------------------------------------------


class JsonSchemaResponseFormat(OpenAIBaseModel):
    """Schema of a `ResponseFormat`."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(OpenAIBaseModel):
    """Required format of the generated text."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaResponseFormat | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.json_schema is None):
            raise ValueError("`json_schema` needs a `schema`.")
        return self

    def constraint(self) -> dict[str, Any]:
        """Return this format as arguments of `StructuredOutputsParams`; empty for text."""
        match self.type:
            case "json_object":
                return {"json_object": True}
            case "json_schema":
                assert self.json_schema is not None
                return {"json": self.json_schema.json_schema}
            case "structural_tag":
                return {"structural_tag": json.dumps(self.model_dump(by_alias=True, exclude_none=True))}
        return {}


class SamplingRequest(OpenAIBaseModel):
    """Fields that chat and completion requests share, and their conversion to `SamplingParams`.

    vLLM repeats them in ChatCompletionRequest and CompletionRequest.
    """

    model: str | None = None
    """Served model name; None for the only model."""
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    n: int | None = 1
    seed: int | None = Field(None, ge=-INT64_LIMIT, le=INT64_LIMIT - 1)
    stop: str | Items[str] | None = None
    stop_token_ids: Items[int] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int = 0
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    allowed_token_ids: Items[int] | None = None
    bad_words: Items[str] = Field(default_factory=list)
    prompt_logprobs: int | None = None
    user: str | None = None
    priority: int = Field(0, ge=-INT64_LIMIT, lt=INT64_LIMIT)
    request_id: str = Field(default_factory=random_uuid, max_length=MAX_ID_LENGTH)
    return_tokens_as_token_ids: bool | None = None
    """Return tokens beside log probabilities as `token_id:17`, not as text."""
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    """Share cached blocks of the prompt only with requests of the same salt."""
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None

    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: Items[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None
    structural_tag: str | None = None
    guided_decoding_backend: str | None = None

    use_beam_search: bool = False
    """Search the `n` best outputs. Of the other sampling fields only `temperature`, `ignore_eos`, `length_penalty` and
    `include_stop_str_in_output` then have an effect."""
    length_penalty: float = 1.0
    """Power of the length that a beam's sum of log probabilities is divided by."""

    # Features of vLLM that tracellm lacks; only values that request nothing are accepted.
    best_of: int | None = None
    logits_processors: list[Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None

    unsupported_args: ClassVar[tuple[str, ...]] = ("kv_transfer_params",)

    @field_validator("cache_salt", mode="before")
    @classmethod
    def _check_cache_salt(cls, value: Any) -> Any:
        if value is not None and not (isinstance(value, str) and value):
            raise ValueError("Parameter 'cache_salt' must be a non-empty string if provided.")
        return value

    @model_validator(mode="after")
    def _check_shared_fields(self) -> Self:
        for name in self.unsupported_args:
            if getattr(self, name):
                raise ValueError(f"`{name}` needs a feature of vLLM that tracellm does not have: leave it out.")
        if self.stream_options is not None and self.stream_options.model_fields_set and not self.stream:
            raise ValueError("Stream options can only be defined when `stream=True`.")
        if self.stream and self.prompt_logprobs and self.prompt_logprobs >= -1:
            raise ValueError("`prompt_logprobs` are not available when `stream=True`.")
        if self.prompt_logprobs is not None and self.prompt_logprobs < -1:
            raise ValueError("`prompt_logprobs` must be a positive value or -1.")
        if sum((self.structured_outputs or {}).get(name) is not None for name in ("json", "regex", "choice")) > 1:
            raise ValueError(
                "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice')."
            )
        for name in ("stop", "bad_words"):
            strings = getattr(self, name)
            if isinstance(strings, list) and len(strings) > _MAX_STRINGS:
                raise ValueError(f"`{name}` may hold at most {_MAX_STRINGS} strings, got {len(strings)}.")
        if (num_characters := sum(map(len, self.bad_words))) > _MAX_BAD_CHARACTERS:
            raise ValueError(f"`bad_words` may hold at most {_MAX_BAD_CHARACTERS} characters, got {num_characters}.")
        return self

    @property
    def num_choices(self) -> int:
        """Number of outputs per prompt."""
        return 1 if self.n is None else self.n

    def include_usage(self, force: bool = False) -> tuple[bool, bool]:
        """Return whether the stream ends with the usage, and whether every chunk includes it.

        vLLM: vllm/entrypoints/utils.py::should_include_usage.
        """
        if self.stream_options is None:
            return force, False
        usage = bool(self.stream_options.include_usage) or force
        return usage, usage and bool(self.stream_options.continuous_usage_stats)

    def _structured_outputs(self) -> StructuredOutputsParams | None:
        """Combine all format fields into one constraint.

        Raises:
            EngineError: The fields contain more than one constraint.
        """
        params = None
        if self.structured_outputs is not None:
            params = StructuredOutputsParams(**self.structured_outputs)
        fields = {
            "json": self.guided_json,
            "regex": self.guided_regex,
            "choice": self.guided_choice,
            "grammar": self.guided_grammar,
            "whitespace_pattern": self.guided_whitespace_pattern,
            "structural_tag": self.structural_tag,
        }
        constraints: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        if self.response_format is not None:
            for name, value in self.response_format.constraint().items():
                if name in constraints:
                    raise InvalidRequestError(
                        "`response_format` and another field both constrain the output: keep one of them."
                    )
                constraints[name] = value
        if not constraints:
            return params
        # The constructor rejects two constraints; vLLM assigns the fields, and the last one wins.
        return StructuredOutputsParams(**constraints) if params is None else replace(params, **constraints)

    def constrain_to(self, schema: dict[str, Any]) -> None:
        """Replace all format fields by a JSON schema, with at most one space between its parts."""
        for name in ("response_format", "guided_whitespace_pattern", *_FORMATS):
            setattr(self, name, None)
        self.structured_outputs = {"json": schema, "whitespace_pattern": " ?"}

    def field_of(self, param: str) -> str:
        """Return the field of the request that gives a sampling parameter its value, for messages."""
        if param != "structured_outputs":
            return param
        if self.response_format is not None and self.response_format.constraint():
            return "response_format"
        return next((name for name in _FORMATS if getattr(self, name) is not None), param)

    def to_beam_search_params(self, max_tokens: int, default_sampling_params: dict[str, Any]) -> BeamSearchParams:
        """Convert these fields to the parameters of a beam search.

        Raises:
            InvalidRequestError: The width is not positive.
        """
        if self.num_choices < 1:
            raise InvalidRequestError(f"n must be at least 1, got {self.num_choices}.")
        temperature = default_sampling_params.get("temperature", 1.0) if self.temperature is None else self.temperature
        return BeamSearchParams(
            beam_width=self.num_choices,
            max_tokens=max_tokens,
            ignore_eos=self.ignore_eos,
            temperature=temperature,
            length_penalty=self.length_penalty,
            include_stop_str_in_output=self.include_stop_str_in_output,
        )

    def _sampling_params(
        self, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None, defaults: dict[str, Any]
    ) -> SamplingParams:
        """Convert these fields to sampling parameters.

        Args:
            max_tokens: Maximum number of tokens to generate.
            logprobs: As in `SamplingParams`.
            prompt_logprobs: As in `SamplingParams`.
            defaults: Values of generation_config.json for fields that the request leaves out.

        Raises:
            EngineError: A value is invalid.
        """
        with_defaults = {
            name: defaults.get(name) if (value := getattr(self, name)) is None else value
            for name in ("repetition_penalty", "temperature", "top_p", "top_k", "min_p")
        }
        if self.logits_processors:
            raise InvalidRequestError(
                "The `logits_processors` argument is not supported by this server. See --logits-processor-pattern "
                "engine argument for more information. tracellm has no such option: use `logit_bias`, "
                "`allowed_token_ids`, `bad_words` or `structured_outputs`."
            )
        return SamplingParams.from_optional(
            n=self.n,
            best_of=self.best_of,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            **with_defaults,
            seed=self.seed,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            ignore_eos=self.ignore_eos,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            skip_special_tokens=self.skip_special_tokens,
            spaces_between_special_tokens=self.spaces_between_special_tokens,
            include_stop_str_in_output=self.include_stop_str_in_output,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            output_kind=RequestOutputKind.DELTA if self.stream else RequestOutputKind.FINAL_ONLY,
            structured_outputs=self._structured_outputs(),
            logit_bias=self.logit_bias,
            bad_words=self.bad_words,
            allowed_token_ids=self.allowed_token_ids,
            extra_args=dict(self.vllm_xargs) if self.vllm_xargs else None,
        )


# -- /v1/chat/completions ---------------------------------------------------------------------------------------------


_NAMED_TOOL_USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'


class ChatCompletionRequest(SamplingRequest):
    """Body of `/v1/chat/completions`."""

    messages: Items[dict[str, Any]]
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    """Newer name of `max_tokens`; takes precedence."""
    tools: Items[ChatCompletionToolsParam] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = "none"
    parallel_tool_calls: bool | None = False
    reasoning_effort: ReasoningEffort | None = None
    """Amount of reasoning: the chat template's `reasoning_effort` and `enable_thinking`, as in vLLM 0.32."""
    include_reasoning: bool = True
    echo: bool = False
    """Begin the output with the last message if it has the role of the response."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: Items[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None

    unsupported_args: ClassVar[tuple[str, ...]] = (*SamplingRequest.unsupported_args, "mm_processor_kwargs")

    @model_validator(mode="before")
    @classmethod
    def _default_tool_choice(cls, data: Any) -> Any:
        """Default `tool_choice` to `auto` for a request with tools."""
        if isinstance(data, dict) and "tool_choice" not in data and data.get("tools"):
            return {**data, "tool_choice": "auto"}
        return data

    @field_validator("tool_choice", mode="before")
    @classmethod
    def _check_tool_choice(cls, value: Any) -> Any:
        if isinstance(value, dict):
            function, usage = value.get("function"), _NAMED_TOOL_USAGE
            if not isinstance(function, dict):
                raise ValueError(f"Invalid value for `function`: `{str(function)[:60]}` in `tool_choice`! {usage}")
            if "name" not in function:
                raise ValueError(f"Expected field `name` in `function` in `tool_choice`! {usage}")
            if not isinstance(name := function["name"], str) or not name:
                raise ValueError(f"Invalid `name` in `function`: `{str(name)[:60]}` in `tool_choice`! {usage}")
        elif value not in (None, "none", "auto", "required"):
            raise ValueError(
                f'Invalid value for `tool_choice`: {str(value)[:60]}! Only named tools, "none", "auto" or "required" '
                "are supported."
            )
        return value

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.top_logprobs is not None and self.top_logprobs < -1:
            raise ValueError("`top_logprobs` must be a positive value or -1.")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("when using `top_logprobs`, `logprobs` must be set to true.")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        if self.tool_choice not in (None, "none") and self.tools is None:
            raise ValueError("When using `tool_choice`, `tools` must be set.")
        if self.tool_choice == "required" and not self.tools:  # as in OpenAI's API
            self.tool_choice, self.tools = "none", None
        if self.named_tool is not None and self.named_tool not in [tool.function.name for tool in self.tools or ()]:
            raise ValueError("The tool specified in `tool_choice` does not match any of the specified `tools`")
        return self

    @property
    def has_single_call(self) -> bool:
        """Whether the request asks for at most one tool call. vLLM 0.11.1 ignores this, as its default is false."""
        return self.parallel_tool_calls is False and "parallel_tool_calls" in self.model_fields_set

    @property
    def named_tool(self) -> str | None:
        """Name of the function that `tool_choice` requires, or None."""
        return str(self.tool_choice["function"]["name"]) if isinstance(self.tool_choice, dict) else None

    @property
    def requires_call(self) -> bool:
        """Whether the output is constrained to a tool call."""
        return self.tool_choice == "required" or self.named_tool is not None

    def field_of(self, param: str) -> str:
        """Return the field of the request that gives a sampling parameter its value, for messages."""
        match param:
            case "logprobs":
                return "top_logprobs"
            case "max_tokens" if self.max_completion_tokens is not None:
                return "max_completion_tokens"
            case "structured_outputs" if self.requires_call:
                return "tools"
        return super().field_of(param)

    def to_sampling_params(self, max_tokens: int, default_sampling_params: dict[str, Any]) -> SamplingParams:
        """Convert the request to sampling parameters; `echo` adds log probabilities of the prompt."""
        prompt_logprobs = self.prompt_logprobs
        if prompt_logprobs is None and self.echo:
            prompt_logprobs = self.top_logprobs
        logprobs = self.top_logprobs if self.logprobs else None
        return self._sampling_params(max_tokens, logprobs, prompt_logprobs, default_sampling_params)


def _copy_reasoning(message: Any) -> Any:
    """Set `reasoning_content`, the older name of `reasoning`, in a message or its delta."""
    message.reasoning_content = message.reasoning
    return message


class ChatMessage(OpenAIBaseModel):
    """Generated message."""

    role: str
    content: str | None = None
    refusal: str | None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    reasoning: str | None = None
    reasoning_content: str | None = None

    _copy_reasoning = model_validator(mode="after")(_copy_reasoning)


class ChatCompletionLogProb(OpenAIBaseModel):
    """Log probability of a token; -9999 stands for minus infinity, which JSON lacks."""

    token: str
    logprob: float = -9999.0
    bytes: list[int] | None = None


class ChatCompletionLogProbsContent(ChatCompletionLogProb):
    """Log probability of a generated token, with those of the most likely tokens at its position."""

    top_logprobs: list[ChatCompletionLogProb] = Field(default_factory=list)


class ChatCompletionLogProbs(OpenAIBaseModel):
    """Log probabilities, one entry per generated token."""

    content: list[ChatCompletionLogProbsContent] | None = None


class ChatCompletionResponseChoice(OpenAIBaseModel):
    """One of the `n` outputs."""

    index: int
    message: ChatMessage
    logprobs: ChatCompletionLogProbs | None = None
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None
    """Stop string or stop token that ended the output, or None."""
    token_ids: list[int] | None = None


class ChatCompletionResponse(OpenAIBaseModel):
    """Complete response of `/v1/chat/completions`."""

    id: str = Field(default_factory=lambda: f"chatcmpl-{random_uuid()}")
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(default_factory=unix_time)
    model: str
    choices: list[ChatCompletionResponseChoice]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: UsageInfo
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    prompt_token_ids: list[int] | None = None
    kv_transfer_params: None = None


class DeltaMessage(OpenAIBaseModel):
    """New part of a generated message."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DeltaToolCall] = Field(default_factory=list)

    _copy_reasoning = model_validator(mode="after")(_copy_reasoning)


class ChatCompletionResponseStreamChoice(OpenAIBaseModel):
    """New part of one of the `n` outputs."""

    index: int
    delta: DeltaMessage
    logprobs: ChatCompletionLogProbs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletionStreamResponse(OpenAIBaseModel):
    """Chunk of a chat stream."""

    id: str = Field(default_factory=lambda: f"chatcmpl-{random_uuid()}")
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int = Field(default_factory=unix_time)
    model: str
    choices: list[ChatCompletionResponseStreamChoice]
    usage: UsageInfo | None = None
    prompt_token_ids: list[int] | None = None


# -- /v1/completions --------------------------------------------------------------------------------------------------


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def check_prompts(value: Any) -> Any:
    """Validate prompts at once: pydantic reports an error for each union member, and is slow for token ids.

    Raises:
        ValueError: They have none of the accepted forms.
    """
    if value is None or isinstance(value, str) or _is_token_ids(value):
        return value
    if isinstance(value, list) and (all(isinstance(item, str) for item in value) or all(map(_is_token_ids, value))):
        return value
    raise ValueError("must be a text, a list of texts, a list of token ids, or a list of such lists, none empty.")


class CompletionRequest(SamplingRequest):
    """Body of `/v1/completions`."""

    prompt: str | Items[str] | Items[int] | Items[Items[int]] | None = None
    """Text, list of texts, token ids, or list of token id lists."""
    echo: bool | None = False
    """Begin the output with the prompt."""
    logprobs: int | None = None
    max_tokens: int | None = 16
    suffix: str | None = None
    add_special_tokens: bool = True
    prompt_embeds: Any = None

    @field_validator("prompt", mode="plain")
    @classmethod
    def _check_prompt(cls, value: Any) -> Any:
        return check_prompts(value)

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.prompt in (None, "") and not self.prompt_embeds:
            raise ValueError("Either prompt or prompt_embeds must be provided and non-empty.")
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError("`logprobs` must be a positive value.")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """Prompts as a list, each a text or token ids."""
        prompt: Any = self.prompt
        return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt

    @property
    def only_echo(self) -> bool:
        """True to return only the prompt, for its log probabilities; one token is generated and dropped."""
        return bool(self.echo) and self.max_tokens == 0

    def to_sampling_params(self, max_tokens: int, default_sampling_params: dict[str, Any]) -> SamplingParams:
        """Convert the request to sampling parameters; `echo` adds log probabilities of the prompt."""
        prompt_logprobs = self.prompt_logprobs
        if prompt_logprobs is None and self.echo:
            prompt_logprobs = self.logprobs
        if self.only_echo:
            max_tokens = 1
        return self._sampling_params(max_tokens, self.logprobs, prompt_logprobs, default_sampling_params)


class CompletionLogProbs(OpenAIBaseModel):
    """Log probabilities as parallel lists, one entry per token."""

    text_offset: list[int] = Field(default_factory=list)
    """Offset of each token in the text, in characters."""
    token_logprobs: list[float | None] = Field(default_factory=list)
    tokens: list[str] = Field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = Field(default_factory=list)


class CompletionResponseChoice(OpenAIBaseModel):
    """One output; those of the first prompt come first."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    """Stop string or stop token that ended the output, or None."""
    token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionResponse(OpenAIBaseModel):
    """Complete response of `/v1/completions`."""

    id: str = Field(default_factory=lambda: f"cmpl-{random_uuid()}")
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=unix_time)
    model: str
    choices: list[CompletionResponseChoice]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: UsageInfo
    kv_transfer_params: None = None


class CompletionResponseStreamChoice(OpenAIBaseModel):
    """New part of one output."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class CompletionStreamResponse(OpenAIBaseModel):
    """Chunk of a completion stream."""

    id: str = Field(default_factory=lambda: f"cmpl-{random_uuid()}")
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=unix_time)
    model: str
    choices: list[CompletionResponseStreamChoice]
    usage: UsageInfo | None = None
