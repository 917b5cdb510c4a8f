"""The fields that chat and completions share, and how they become `SamplingParams`.

A field is checked twice. Here its type is: JSON has other types than Python, and `"5"` passes for 5, as in vLLM. What
the value may be, `SamplingParams` says.

vLLM: vllm/entrypoints/openai/protocol.py::ChatCompletionRequest, ::CompletionRequest, where each has its own.
"""

import json
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.protocol.base import LONGEST_ID, OpenAIBaseModel, StreamOptions, random_uuid
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

__all__ = ["ResponseFormat", "SamplingFields"]

_MOST_STRINGS = 1024
"""The most `stop` strings or `bad_words`: each is looked for at every token."""
_BITS_64 = 2**63


class JsonSchemaResponseFormat(OpenAIBaseModel):
    """The schema of `response_format`."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(OpenAIBaseModel):
    """The form that the answer must have."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaResponseFormat | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.json_schema is None):
            raise ValueError("`json_schema` needs a `schema`.")
        return self

    def constraint(self) -> dict[str, Any]:
        """The arguments of `StructuredOutputsParams` that ask for this form; none for text."""
        match self.type:
            case "json_object":
                return {"json_object": True}
            case "json_schema":
                assert self.json_schema is not None
                return {"json": self.json_schema.json_schema}
            case "structural_tag":
                return {"structural_tag": json.dumps(self.model_dump(by_alias=True, exclude_none=True))}
        return {}


class SamplingFields(OpenAIBaseModel):
    """A request that generates."""

    model: str | None = None
    """One of the served names; without it the model that there is."""
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    n: int | None = 1
    seed: int | None = Field(None, ge=-_BITS_64, lt=_BITS_64)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
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
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    prompt_logprobs: int | None = None
    user: str | None = None
    priority: int = Field(0, ge=-_BITS_64, lt=_BITS_64)
    request_id: str = Field(default_factory=random_uuid, max_length=LONGEST_ID)
    return_tokens_as_token_ids: bool | None = None
    """Tokens beside log probabilities are `token_id:17` instead of text."""
    return_token_ids: bool | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None

    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None
    structural_tag: str | None = None
    guided_decoding_backend: str | None = None

    # For what tracellm does not have: only what asks for nothing is accepted.
    best_of: int | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    logits_processors: list[Any] | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None

    not_here: ClassVar[tuple[str, ...]] = ("use_beam_search", "cache_salt", "kv_transfer_params")

    @model_validator(mode="after")
    def _checked(self) -> Self:
        for name in self.not_here:
            if getattr(self, name):
                raise ValueError(f"`{name}` is for what vLLM has and tracellm does not: leave it out.")
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` can only be given with `stream=true`.")
        if self.stream and self.prompt_logprobs:
            raise ValueError("`prompt_logprobs` are not available with `stream=true`.")
        for name in ("stop", "bad_words"):
            strings = getattr(self, name)
            if isinstance(strings, list) and len(strings) > _MOST_STRINGS:
                raise ValueError(f"`{name}` may hold at most {_MOST_STRINGS} strings, got {len(strings)}.")
        return self

    @property
    def num_choices(self) -> int:
        """How many continuations are asked for."""
        return 1 if self.n is None else self.n

    def include_usage(self, force: bool = False) -> tuple[bool, bool]:
        """Does a stream end with the usage, and does every chunk have it?

        vLLM: vllm/entrypoints/utils.py::should_include_usage.
        """
        if self.stream_options is None:
            return force, force
        usage = bool(self.stream_options.include_usage) or force
        return usage, usage and bool(self.stream_options.continuous_usage_stats)

    def _structured_outputs(self) -> StructuredOutputsParams | None:
        """The one constraint that all these fields together ask for.

        Raises:
            EngineError: there are several.
        """
        params = None
        if self.structured_outputs is not None:
            params = StructuredOutputsParams(**self.structured_outputs)
        older = {
            "json": self.guided_json,
            "regex": self.guided_regex,
            "choice": self.guided_choice,
            "grammar": self.guided_grammar,
            "whitespace_pattern": self.guided_whitespace_pattern,
            "structural_tag": self.structural_tag,
        }
        asked: dict[str, Any] = {name: value for name, value in older.items() if value is not None}
        if self.response_format is not None:
            for name, value in self.response_format.constraint().items():
                if name in asked:
                    raise InvalidRequestError("`response_format` and another field ask for a form: keep one of them.")
                asked[name] = value
        if not asked:
            return params
        # Made anew, so that two constraints are refused; vLLM sets the field, and the later one wins.
        return StructuredOutputsParams(**asked) if params is None else replace(params, **asked)

    def _sampling_params(
        self, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None, defaults: dict[str, Any]
    ) -> SamplingParams:
        """These fields as the engine wants them.

        Args:
            max_tokens: the most tokens to generate.
            logprobs: as in `SamplingParams`.
            prompt_logprobs: as in `SamplingParams`.
            defaults: what generation_config.json recommends for fields that the request leaves out.

        Raises:
            EngineError: a value that cannot be.
        """
        chosen = {
            name: defaults.get(name) if (value := getattr(self, name)) is None else value
            for name in ("repetition_penalty", "temperature", "top_p", "top_k", "min_p")
        }
        return SamplingParams.from_optional(
            n=self.n,
            best_of=self.best_of,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            **chosen,
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
            logits_processors=self.logits_processors,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            output_kind=RequestOutputKind.DELTA if self.stream else RequestOutputKind.FINAL_ONLY,
            structured_outputs=self._structured_outputs(),
            logit_bias=self.logit_bias,
            bad_words=self.bad_words,
            allowed_token_ids=self.allowed_token_ids,
            extra_args=dict(self.vllm_xargs) if self.vllm_xargs else None,
        )
