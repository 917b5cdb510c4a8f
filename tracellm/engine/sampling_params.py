"""How a request wants its tokens chosen, and when to stop: the one argument every prompt comes with.

A `SamplingParams` is checked when it is made, so a bad value is refused on the user's own line. The `Processor` then
completes a copy of it for the request (`update_from_generation_config`), the scheduler reads the stop conditions, the
sampler the rest.

vLLM: vllm/sampling_params.py::SamplingParams. The parameters marked `_NOT_YET` are known by name and refused.
"""

import copy
import math
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any

from tracellm.engine.errors import EngineError, did_you_mean
from tracellm.engine.validation import NUMBER, Rule, all_are, verify

__all__ = ["RequestOutputKind", "SamplingParams", "SamplingType"]

_SAMPLING_EPS = 1e-5  # a lower temperature is greedy
_MIN_TEMPERATURE = 1e-2  # lower ones would overflow float16 logits: raised to this, as vLLM does


class SamplingType(IntEnum):
    """How the next token is drawn."""

    GREEDY = 0
    """The likeliest token."""
    RANDOM = 1
    """At random, from the generator that all such requests share."""
    RANDOM_SEED = 2
    """At random, from the request's own generator."""


class RequestOutputKind(Enum):
    """Which outputs of a running request its caller wants to see."""

    CUMULATIVE = 0
    """After every step, all so far."""
    DELTA = 1
    """After every step, what is new."""
    FINAL_ONLY = 2
    """Only the finished one; what `LLM.generate` asks for."""


def _any(value: object) -> bool:
    return True


_RULES = (
    Rule("temperature", NUMBER, lambda v: 0 <= v < math.inf, "a number, at least 0 (0 is greedy)"),
    Rule("top_p", NUMBER, lambda v: 0 < v <= 1, "a number in (0, 1] (1 keeps all tokens)"),
    Rule("top_k", int, lambda v: v >= -1, "a whole number: at least 1, or 0 (or -1) to keep all tokens"),
    Rule("seed", int, lambda v: -(2**63) <= v < 2**63, "a whole number of 64 bits, or None"),
    Rule("max_tokens", int, lambda v: v >= 1, "a whole number, at least 1, or None"),
    Rule("min_tokens", int, lambda v: v >= 0, "a whole number, at least 0"),
    Rule("stop", (list, tuple), all_are(str, bool), "a string or a list of strings, none of them empty"),
    Rule("stop_token_ids", (list, tuple), all_are(int, lambda v: v >= 0), "a list of token ids (0 or more)"),
    Rule("ignore_eos", bool, _any, "True or False"),
    Rule("detokenize", bool, _any, "True or False"),
    Rule("skip_special_tokens", bool, _any, "True or False"),
    Rule("spaces_between_special_tokens", bool, _any, "True or False"),
    Rule("include_stop_str_in_output", bool, _any, "True or False"),
    Rule("output_kind", RequestOutputKind, _any, "a RequestOutputKind"),
)


_NOT_YET = {"not_yet": True}
"""Marks a parameter of vLLM's that tracellm does not have: any value but the default is refused."""


@dataclass(kw_only=True)
class SamplingParams:
    """Sampling parameters of a request; names, defaults and meaning as in vLLM.

    Raises:
        EngineError: an unknown name, a value out of range, or one that is not supported yet.
    """

    temperature: float = 1.0
    """0 is greedy; higher is more random. At least 0."""
    top_p: float = 1.0
    """Keep the likeliest tokens that together have this probability. In (0, 1]; 1 keeps all."""
    top_k: int = 0
    """Keep this many of the likeliest tokens; 0 or -1 keeps all."""
    seed: int | None = None
    """Seed of the request's own random generator; `None` shares the engine's."""
    max_tokens: int | None = 16
    """The most tokens to generate; `None` goes on to the model's length."""
    min_tokens: int = 0
    """No end-of-sequence or stop token before this many tokens were generated."""
    stop: str | list[str] | None = None
    """Strings that end the generation as soon as they appear; not part of the returned text."""
    stop_token_ids: list[int] | None = None
    """Tokens that end the generation."""
    ignore_eos: bool = False
    """Go on after the end-of-sequence token."""
    detokenize: bool = True
    """Turn the generated tokens into text."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    spaces_between_special_tokens: bool = True
    """Known from vLLM; makes no difference to the byte-level tokenizers of the models here."""
    include_stop_str_in_output: bool = False
    """Keep the stop string at the end of the text."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE

    n: int = field(default=1, repr=False, metadata=_NOT_YET)
    best_of: int | None = field(default=None, repr=False, metadata=_NOT_YET)
    presence_penalty: float = field(default=0.0, repr=False, metadata=_NOT_YET)
    frequency_penalty: float = field(default=0.0, repr=False, metadata=_NOT_YET)
    repetition_penalty: float = field(default=1.0, repr=False, metadata=_NOT_YET)
    min_p: float = field(default=0.0, repr=False, metadata=_NOT_YET)
    logprobs: int | None = field(default=None, repr=False, metadata=_NOT_YET)
    prompt_logprobs: int | None = field(default=None, repr=False, metadata=_NOT_YET)
    bad_words: list[str] | None = field(default=None, repr=False, metadata=_NOT_YET)
    logit_bias: dict[int, float] | None = field(default=None, repr=False, metadata=_NOT_YET)
    allowed_token_ids: list[int] | None = field(default=None, repr=False, metadata=_NOT_YET)
    logits_processors: list[Any] | None = field(default=None, repr=False, metadata=_NOT_YET)
    structured_outputs: dict[str, Any] | None = field(default=None, repr=False, metadata=_NOT_YET)
    guided_decoding: dict[str, Any] | None = field(default=None, repr=False, metadata=_NOT_YET)
    truncate_prompt_tokens: int | None = field(default=None, repr=False, metadata=_NOT_YET)
    extra_args: dict[str, Any] | None = field(default=None, repr=False, metadata=_NOT_YET)

    output_text_buffer_length: int = field(default=0, init=False, repr=False)
    """Characters to hold back while streaming, as they may turn out to begin a stop string."""
    _all_stop_token_ids: set[int] = field(default_factory=set, init=False, repr=False)

    def __new__(cls, *args: object, **kwargs: object) -> "SamplingParams":
        """Refuse unknown names before `__init__` does, with what is accepted."""
        if args:
            raise EngineError(
                f"SamplingParams takes its parameters by name, as in SamplingParams(temperature=0); got {args[0]!r}."
            )
        known = [f.name for f in fields(cls) if f.init]
        for name in kwargs:
            if name not in known:
                accepted = ", ".join(f.name for f in fields(cls) if f.init and not f.metadata.get("not_yet"))
                raise EngineError(
                    f"SamplingParams has no parameter `{name}`.{did_you_mean(name, known)} It takes: {accepted}."
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._refuse_what_is_not_supported()
        if self.stop is None or isinstance(self.stop, str):
            self.stop = [self.stop] if self.stop is not None else []
        if self.stop_token_ids is None:
            self.stop_token_ids = []
        if self.seed == -1:
            self.seed = None
        self._verify_args()
        if self.temperature < _SAMPLING_EPS:
            self.top_p, self.top_k = 1.0, 0
        else:
            self.temperature = max(self.temperature, _MIN_TEMPERATURE)
        if self.stop and not self.include_stop_str_in_output:
            self.output_text_buffer_length = max(map(len, self.stop)) - 1
        self._all_stop_token_ids.update(self.stop_token_ids)

    def _refuse_what_is_not_supported(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.metadata.get("not_yet") and value != f.default and value not in ([], {}):
                accepted = f"leave it out ({f.default!r} is accepted)"
                raise EngineError(f"SamplingParams: `{f.name}={value!r}` is not supported yet; {accepted}.")

    def _verify_args(self) -> None:
        verify("SamplingParams", self, _RULES)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise EngineError(
                f"SamplingParams: `min_tokens` must be at most `max_tokens`={self.max_tokens}, got {self.min_tokens}."
            )
        if self.stop and not self.detokenize:
            raise EngineError(
                "SamplingParams: `stop` strings need the text: use `detokenize=True` or `stop_token_ids`."
            )

    def update_from_generation_config(
        self, generation_config: dict[str, Any], model_eos_token_id: int | None = None
    ) -> None:
        """Add the model's end-of-sequence tokens to the stop tokens.

        `model_eos_token_id` is the tokenizer's and is checked apart from the others, so it is not put among
        `stop_token_ids`; further ones that generation_config.json names are, unless `ignore_eos`.
        """
        if model_eos_token_id is not None:
            self._all_stop_token_ids.add(model_eos_token_id)
        eos_ids = generation_config.get("eos_token_id")
        if eos_ids is None:
            return
        further = {eos_ids} if isinstance(eos_ids, int) else set(eos_ids)
        further.discard(model_eos_token_id)
        self._all_stop_token_ids.update(further)
        if further and not self.ignore_eos:
            self.stop_token_ids = sorted(further.union(self.stop_token_ids or ()))

    @cached_property
    def sampling_type(self) -> SamplingType:
        """Greedy, random, or random with the request's own seed."""
        if self.temperature < _SAMPLING_EPS:
            return SamplingType.GREEDY
        return SamplingType.RANDOM if self.seed is None else SamplingType.RANDOM_SEED

    @property
    def all_stop_token_ids(self) -> set[int]:
        """Every token that may end the request: its own stop tokens and the model's end-of-sequence tokens."""
        return self._all_stop_token_ids

    def clone(self) -> "SamplingParams":
        """A copy that can be completed without touching the user's own."""
        return copy.deepcopy(self)
