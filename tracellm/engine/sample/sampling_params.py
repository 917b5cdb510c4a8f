"""Sampling parameters: how a request's tokens are chosen, and when it stops.

Every prompt comes with a `SamplingParams`, checked when it is made. The `Processor` completes a copy of it for the
request (`update_from_generation_config`, `update_from_tokenizer`). The scheduler reads the stop conditions, the sampler
the rest, and `structured_output/` the `StructuredOutputsParams`.

vLLM: vllm/sampling_params.py, which accepts NaN and values of a wrong type; they fail later, in the engine. Left out:
beam search, and the choice of a structured output backend.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineError, InvalidRequestError, shorten
from tracellm.engine.config.validation import NUMBER, Rule, all_are, anything, is_a, reject_unknown_fields, verify

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["GuidedDecodingParams", "RequestOutputKind", "SamplingParams", "SamplingType", "StructuredOutputsParams"]

_MIN_TEMPERATURE = 1e-2  # lower ones would overflow float16 logits; vLLM raises them too
_MAX_BIAS = 100.0  # limit of OpenAI's API
_MAX_SEED = 2**64 - 1
_TOO_LARGE = 2**127  # the sampler computes in float32, whose range ends at 2**128
_NUMBERS_WITH_DEFAULT = (
    *("n", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("temperature", "top_p", "top_k", "min_p"),
)


class SamplingType(IntEnum):
    """Method of choosing the next token."""

    GREEDY = 0
    """The likeliest token."""
    RANDOM = 1
    """Drawn with the generator that such requests share."""
    RANDOM_SEED = 2
    """Drawn with the request's own generator."""


class RequestOutputKind(Enum):
    """Selection of the outputs that a request's caller gets."""

    CUMULATIVE = 0
    """All tokens so far, after every step."""
    DELTA = 1
    """New tokens, after every step."""
    FINAL_ONLY = 2
    """All tokens, once the request has finished; used by `LLM.generate`."""


_CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_STRUCTURED_RULES = (
    Rule("json", (str, dict), anything, "a JSON schema, as a dict or a string, or None"),
    Rule("regex", str, anything, "a regular expression, or None"),
    Rule("choice", (list, tuple), all_are(str, anything), "a list of strings, or None"),
    Rule("grammar", str, anything, "a context-free grammar as a string, or None"),
    Rule("json_object", bool, anything, "True or False, or None"),
    Rule("disable_fallback", bool, anything, "True or False"),
    Rule("disable_any_whitespace", bool, anything, "True or False"),
    Rule("disable_additional_properties", bool, anything, "True or False"),
    Rule("whitespace_pattern", str, anything, "a regular expression, or None"),
    Rule("structural_tag", str, anything, "a structural tag, JSON as a string, or None"),
)


@dataclass
class StructuredOutputsParams:
    """Constraint on the form of a request's output; names and defaults as in vLLM.

    Raises:
        EngineError: more than one constraint, an unknown name, or a value of the wrong type.
    """

    json: str | dict[str, Any] | None = None
    """JSON schema of the output."""
    regex: str | None = None
    """Regular expression for the whole output."""
    choice: list[str] | None = None
    """Strings, one of which is the output."""
    grammar: str | None = None
    """Context-free grammar, in EBNF or Lark syntax."""
    json_object: bool | None = None
    """Accept any JSON object."""
    disable_fallback: bool = False
    """Ignored; there is one backend. vLLM has several."""
    disable_any_whitespace: bool = False
    """Forbid whitespace between the parts of JSON."""
    disable_additional_properties: bool = False
    """Forbid properties that the schema does not name."""
    whitespace_pattern: str | None = None
    """Regular expression for the whitespace between the parts of JSON."""
    structural_tag: str | None = None
    """Tags that open a constrained section within free text, as JSON."""

    def __new__(cls, *args: object, **kwargs: object) -> StructuredOutputsParams:
        """Reject unknown names, with a better message than `__init__`'s."""
        reject_unknown_fields(cls, kwargs)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        owner = type(self).__name__
        verify(owner, self, _STRUCTURED_RULES)
        constraints = {name: getattr(self, name) for name in _CONSTRAINTS if getattr(self, name) is not None}
        if len(constraints) > 1:
            listed = ", ".join(f"{name}={shorten(value)}" for name, value in constraints.items())
            raise EngineError(
                "You can only use one kind of structured outputs constraint but multiple are specified: "
                f"{owner} got {listed}. Keep one of them."
            )
        if self.choice is not None:
            self.choice = list(self.choice)

    def all_constraints_none(self) -> bool:
        """Return whether no constraint is set; the request then runs unconstrained."""
        return all(getattr(self, name) is None for name in _CONSTRAINTS)


class GuidedDecodingParams(StructuredOutputsParams):
    """Old name of `StructuredOutputsParams`, deprecated in vLLM 0.11 and removed in 0.12."""

    def __post_init__(self) -> None:
        warnings.warn(
            "GuidedDecodingParams is deprecated, as in vLLM 0.11: use StructuredOutputsParams.",
            DeprecationWarning,
            stacklevel=3,
        )
        super().__post_init__()


def _is_bias(bias: Any) -> bool:
    return is_a(bias, NUMBER) and (-_TOO_LARGE < bias < _TOO_LARGE or bias == -math.inf)


def _are_biases(logit_bias: dict[Any, Any]) -> bool:
    return all(is_a(token, int) and _is_bias(bias) for token, bias in logit_bias.items())


_LOGPROBS = "a whole number, at least 0, or -1 for the whole vocabulary, or None"
_N = "a whole number from 1 to 16384"
_REPETITION_PENALTY = "a number above 0 and below 2**127 (1 is none)"
_TEMPERATURE = "a number, at least 0 and below 2**127 (0 is greedy)"
_TRUNCATION = "a whole number, at least 1, or -1 for the model's length, or None"


def _is_penalty(value: float) -> bool:
    return -2 <= value <= 2


def _fits(value: float) -> bool:
    return value < _TOO_LARGE


_RULES = (
    # vLLM 0.11.1 sets no bound; later versions set this one, which VLLM_MAX_N_SEQUENCES changes there.
    Rule("n", int, lambda v: v <= 16384, _N),
    Rule("n", int, lambda v: v >= 1, _N, "n must be at least 1, got {}."),
    Rule(
        *("presence_penalty", NUMBER, _is_penalty, "a number in [-2, 2] (0 is none)"),
        "presence_penalty must be in [-2, 2], got {}.",
    ),
    Rule(
        *("frequency_penalty", NUMBER, _is_penalty, "a number in [-2, 2] (0 is none)"),
        "frequency_penalty must be in [-2, 2], got {}.",
    ),
    Rule("repetition_penalty", NUMBER, _fits, _REPETITION_PENALTY),
    Rule(
        *("repetition_penalty", NUMBER, lambda v: v > 0, _REPETITION_PENALTY),
        "repetition_penalty must be greater than zero, got {}.",
    ),
    Rule("temperature", NUMBER, _fits, _TEMPERATURE),
    Rule("temperature", NUMBER, lambda v: v >= 0, _TEMPERATURE, "temperature must be non-negative, got {}."),
    Rule(
        *("top_p", NUMBER, lambda v: 0 < v <= 1, "a number in (0, 1] (1 keeps all tokens)"),
        "top_p must be in (0, 1], got {}.",
    ),
    Rule(
        *("top_k", int, lambda v: v >= -1, "a whole number: at least 1, or 0 (or -1) to keep all tokens"),
        "top_k must be 0 (disable), or at least 1, got {}.",
    ),
    Rule(
        *("min_p", NUMBER, lambda v: 0 <= v <= 1, "a number in [0, 1] (0 keeps all tokens)"),
        "min_p must be in [0, 1], got {}.",
    ),
    Rule("seed", int, lambda v: -(2**63) <= v <= _MAX_SEED, "a whole number of 64 bits, or None"),
    Rule(
        *("max_tokens", int, lambda v: v >= 1, "a whole number, at least 1, or None"),
        "max_tokens must be at least 1, got {}.",
    ),
    Rule(
        *("min_tokens", int, lambda v: v >= 0, "a whole number, at least 0"),
        "min_tokens must be greater than or equal to 0, got {}.",
    ),
    Rule("stop", (list, tuple), all_are(str, anything), "a string or a list of strings, none of them empty"),
    Rule(
        *("stop", (list, tuple), all_are(str, bool), "a string or a list of strings, none of them empty"),
        "stop cannot contain an empty string.",
    ),
    Rule("stop_token_ids", (list, tuple), all_are(int, lambda v: v >= 0), "a list of token ids (0 or more)"),
    Rule("bad_words", (list, tuple), all_are(str, lambda v: bool(v.strip())), "a list of strings, none of them blank"),
    Rule("logprobs", int, lambda v: v >= -1, _LOGPROBS, "logprobs must be non-negative or -1, got {}."),
    Rule("prompt_logprobs", int, lambda v: v >= -1, _LOGPROBS, "prompt_logprobs must be non-negative or -1, got {}."),
    Rule(
        *("truncate_prompt_tokens", int, lambda v: v == -1 or v >= 1, _TRUNCATION),
        "truncate_prompt_tokens must be an integer >= 1 or -1, got {}",
    ),
    Rule("logit_bias", dict, _are_biases, "a dict from token ids to numbers (below 2**127) or -inf, or None"),
    Rule(
        "allowed_token_ids", (list, tuple), all_are(int, lambda v: v >= 0), "a list of token ids (0 or more), or None"
    ),
    Rule("extra_args", dict, lambda v: all(isinstance(key, str) for key in v), "a dict with names as keys, or None"),
    Rule("ignore_eos", bool, anything, "True or False"),
    Rule("detokenize", bool, anything, "True or False"),
    Rule("skip_special_tokens", bool, anything, "True or False"),
    Rule("spaces_between_special_tokens", bool, anything, "True or False"),
    Rule("include_stop_str_in_output", bool, anything, "True or False"),
    Rule("skip_reading_prefix_cache", bool, anything, "True or False, or None"),
    Rule("output_kind", RequestOutputKind, anything, "RequestOutputKind.CUMULATIVE, .DELTA or .FINAL_ONLY"),
    Rule("structured_outputs", StructuredOutputsParams, anything, "a StructuredOutputsParams, or None"),
    Rule("guided_decoding", StructuredOutputsParams, anything, "a GuidedDecodingParams, or None"),
)


@dataclass(kw_only=True)
class SamplingParams:
    """Sampling parameters of a request; names, defaults and meaning as in vLLM.

    Raises:
        EngineError: an unknown name, a value out of range, or values that do not go together.
    """

    n: int = 1
    """Number of independent outputs."""
    best_of: int | None = field(default=None, repr=False)
    """Rejected, as in vLLM V1: use `n`."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of generated tokens. In [-2, 2]; negative values encourage repetition."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit for each time it was generated. In [-2, 2]."""
    repetition_penalty: float = 1.0
    """Scales down the logits of tokens in the prompt or output. Above 0; below 1 encourages repetition."""
    temperature: float = 1.0
    """0 is greedy; higher is more random. At least 0; values between 0 and 0.01 become 0.01."""
    top_p: float = 1.0
    """Sample from the likeliest tokens with this total probability. In (0, 1]; 1 is all."""
    top_k: int = 0
    """Sample from this many of the likeliest tokens; 0 or -1 is all."""
    min_p: float = 0.0
    """Sample from tokens of at least this share of the likeliest token's probability. In [0, 1]."""
    seed: int | None = None
    """Seed of the request's own random generator; None (or -1) uses the engine's."""
    stop: str | list[str] | None = None
    """Strings that end the generation; left out of the text."""
    stop_token_ids: list[int] | None = None
    """Tokens that end the generation."""
    bad_words: list[str] | None = None
    """Words never generated: the token that would complete one is masked out."""
    include_stop_str_in_output: bool = False
    """Keep the stop string at the end of the text."""
    ignore_eos: bool = False
    """Continue after an end-of-sequence token."""
    max_tokens: int | None = 16
    """Maximum number of generated tokens; None is up to the model's length."""
    min_tokens: int = 0
    """Number of tokens to generate before any end-of-sequence or stop token."""
    logprobs: int | None = None
    """Number of likeliest tokens to report with log probabilities per generated token, plus the generated one. -1 is
    the whole vocabulary, None is no log probabilities."""
    prompt_logprobs: int | None = None
    """The same per prompt token."""
    detokenize: bool = field(default=True, repr=False)
    """Turn generated tokens into text."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    spaces_between_special_tokens: bool = True
    """Keep the tokenizer's spaces between added tokens, when `skip_special_tokens` is off."""
    logits_processors: list[Any] | None = field(default=None, repr=False)
    """Rejected, as in vLLM V1."""
    truncate_prompt_tokens: int | None = None
    """Number of last tokens to keep of a text prompt; -1 is the model's length, None is all."""
    output_kind: RequestOutputKind = field(default=RequestOutputKind.CUMULATIVE, repr=False)
    structured_outputs: StructuredOutputsParams | None = None
    """Constraint on the form of the output."""
    guided_decoding: StructuredOutputsParams | None = field(default=None, repr=False)
    """Deprecated name of `structured_outputs`."""
    logit_bias: dict[int, float] | None = field(default=None, repr=False)
    """Added to the logits of these tokens."""
    allowed_token_ids: list[int] | None = field(default=None, repr=False)
    """The only tokens that may be generated."""
    extra_args: dict[str, Any] | None = None
    """Values for extensions; the engine ignores them."""
    skip_reading_prefix_cache: bool | None = field(default=None, repr=False)
    """Compute the whole prompt despite the prefix cache; None is True with `prompt_logprobs`."""

    output_text_buffer_length: int = field(default=0, init=False, repr=False)
    """Number of characters to hold back while streaming, as they may begin a stop string."""
    _all_stop_token_ids: set[int] = field(default_factory=set, init=False, repr=False)
    _bad_words_token_ids: list[list[int]] | None = field(default=None, init=False, repr=False)

    def __new__(cls, *args: object, **kwargs: object) -> SamplingParams:
        """Reject unknown names, with a better message than `__init__`'s."""
        if args:
            raise EngineError(
                f"SamplingParams takes its parameters by name, as in SamplingParams(temperature=0); got {args[0]!r}."
            )
        reject_unknown_fields(cls, kwargs)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if self.stop is None or isinstance(self.stop, str):
            self.stop = [self.stop] if self.stop is not None else []
        self.stop_token_ids = [] if self.stop_token_ids is None else self.stop_token_ids
        self.bad_words = [] if self.bad_words is None else self.bad_words
        self.logprobs = 1 if self.logprobs is True else self.logprobs
        self.prompt_logprobs = 1 if self.prompt_logprobs is True else self.prompt_logprobs
        if self.seed == -1:
            self.seed = None
        verify("SamplingParams", self, _RULES)
        _verify_combinations(self)
        if self.guided_decoding is not None:
            warnings.warn(
                "guided_decoding is deprecated, as in vLLM 0.11: use structured_outputs.",
                DeprecationWarning,
                stacklevel=3,
            )
            self.structured_outputs, self.guided_decoding = self.guided_decoding, None
        self.stop, self.stop_token_ids = list(self.stop), list(self.stop_token_ids)
        self.bad_words = list(self.bad_words)
        if self.temperature == 0:
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0
        elif self.temperature < _MIN_TEMPERATURE:
            warnings.warn(
                f"SamplingParams: temperature={self.temperature} may overflow the scores; {_MIN_TEMPERATURE} is used, "
                "as in vLLM. For greedy sampling say temperature=0.",
                stacklevel=3,
            )
            self.temperature = _MIN_TEMPERATURE
        if self.stop and not self.include_stop_str_in_output:
            self.output_text_buffer_length = max(map(len, self.stop)) - 1
        self._all_stop_token_ids.update(self.stop_token_ids)
        if self.skip_reading_prefix_cache is None:
            self.skip_reading_prefix_cache = self.prompt_logprobs is not None

    @staticmethod
    def from_optional(**parameters: Any) -> SamplingParams:
        """Create parameters from a server request.

        None is the default of every number. As in OpenAI's API, keys of `logit_bias` may be strings and its values are
        clipped to [-100, 100].

        Raises:
            EngineError: `logit_bias` does not map token ids to numbers, or a value is invalid.
        """
        for name in _NUMBERS_WITH_DEFAULT:
            if parameters.get(name, 0) is None:
                del parameters[name]
        logit_bias = parameters.get("logit_bias")
        if isinstance(logit_bias, Mapping):
            try:
                clipped = {int(token): min(_MAX_BIAS, max(-_MAX_BIAS, bias)) for token, bias in logit_bias.items()}
            except (TypeError, ValueError):
                raise EngineError(
                    f"SamplingParams: `logit_bias` must map token ids to numbers, got {shorten(logit_bias)}."
                ) from None
            parameters["logit_bias"] = clipped
        return SamplingParams(**parameters)

    def update_from_generation_config(
        self, generation_config: dict[str, Any], model_eos_token_id: int | None = None
    ) -> None:
        """Add the model's end-of-sequence tokens to the stop tokens.

        The tokenizer's, `model_eos_token_id`, is checked separately by the scheduler. Others, named in
        generation_config.json, become `stop_token_ids`, unless `ignore_eos`.
        """
        if model_eos_token_id is not None:
            self._all_stop_token_ids.add(model_eos_token_id)
        eos_ids = generation_config.get("eos_token_id")
        if eos_ids is None:
            return
        others = {eos_ids} if isinstance(eos_ids, int) else set(eos_ids)
        others.discard(model_eos_token_id)
        self._all_stop_token_ids.update(others)
        if others and not self.ignore_eos:
            self.stop_token_ids = sorted(others.union(self.stop_token_ids or ()))

    def update_from_tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Tokenize the bad words, each at the start of a text and after a space.

        The second form is left out if the space is a token of its own or changes the number of tokens.

        Raises:
            InvalidRequestError: a word has no tokens.
        """
        if not self.bad_words:
            return
        self._bad_words_token_ids = []
        for word in self.bad_words:
            first, spaced = (tokenizer.encode(space + word.lstrip(), add_special_tokens=False) for space in ("", " "))
            if not first or not spaced:
                raise InvalidRequestError(f"SamplingParams: {word!r} in `bad_words` has no tokens.")
            self._bad_words_token_ids.append(first)
            if spaced[0] != first[0] and len(spaced) == len(first):
                self._bad_words_token_ids.append(spaced)

    @cached_property
    def sampling_type(self) -> SamplingType:
        """Method of choosing tokens."""
        if self.temperature == 0:
            return SamplingType.GREEDY
        return SamplingType.RANDOM if self.seed is None else SamplingType.RANDOM_SEED

    @property
    def all_stop_token_ids(self) -> set[int]:
        """Stop tokens and the model's end-of-sequence tokens."""
        return self._all_stop_token_ids

    @property
    def bad_words_token_ids(self) -> list[list[int]] | None:
        """Bad words as token ids; None before `update_from_tokenizer`, or without bad words."""
        return self._bad_words_token_ids

    def clone(self) -> SamplingParams:
        """Return a deep copy."""
        return copy.deepcopy(self)


def _verify_combinations(params: SamplingParams) -> None:
    """Reject valid parameters that contradict each other, and those that vLLM V1 dropped."""
    if params.best_of not in (None, 1) or (params.best_of == 1 and params.n > 1):
        raise EngineError(
            f"vLLM V1 does not yet support best_of. SamplingParams: `best_of={shorten(params.best_of)}` is not "
            "supported here either: ask for as many outputs with `n` and logprobs=0, and keep those with the highest "
            "`cumulative_logprob`."
        )
    if params.logits_processors:
        raise EngineError(
            "vLLM V1 does not support per request user provided logits processors. SamplingParams: "
            f"`logits_processors={shorten(params.logits_processors)}` are not supported here either: use "
            "`logit_bias`, `allowed_token_ids`, `bad_words` or `structured_outputs`."
        )
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise EngineError(
            f"min_tokens must be less than or equal to max_tokens={params.max_tokens}, got {params.min_tokens}."
        )
    if params.stop and not params.detokenize:
        raise EngineError(
            "stop strings are only supported when detokenize is True. Set detokenize=True to use stop. "
            "SamplingParams: `stop_token_ids` need no text."
        )
    if params.n > 1 and params.temperature == 0:
        raise EngineError(
            f"n must be 1 when using greedy sampling, got {params.n}. With `temperature=0` all outputs would be equal: "
            "raise `temperature`."
        )
    if params.seed is not None and params.seed + params.n - 1 > _MAX_SEED:
        raise EngineError(
            f"SamplingParams: `seed` must be at most {_MAX_SEED - params.n + 1} with `n={params.n}`, as the "
            f"outputs have consecutive seeds; got {params.seed}."
        )
