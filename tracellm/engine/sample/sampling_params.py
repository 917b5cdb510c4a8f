"""How a request wants its tokens chosen, and when to stop: the one argument every prompt comes with.

A `SamplingParams` is checked when it is made (`sampling_rules.py`), so a bad value is refused on the user's own line.
The `Processor` then completes a copy of it for the request (`update_from_generation_config`, `update_from_tokenizer`),
the scheduler reads the stop conditions, the sampler the rest.

vLLM: vllm/sampling_params.py::SamplingParams. Left out: beam search; `best_of` and `logits_processors`, which vLLM V1
refuses too.
"""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.config.validation import Rule, anything, reject_unknown_fields, verify
from tracellm.engine.sample.sampling_rules import RULES, verify_combinations
from tracellm.engine.sample.structured_outputs_params import GuidedDecodingParams, StructuredOutputsParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["GuidedDecodingParams", "RequestOutputKind", "SamplingParams", "SamplingType", "StructuredOutputsParams"]

_MIN_TEMPERATURE = 1e-2  # lower ones would overflow float16 logits: raised to this, as vLLM does
_MAX_BIAS = 100.0  # what OpenAI's API allows
_NUMBERS_WITH_DEFAULT = (
    *("n", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("temperature", "top_p", "top_k", "min_p"),
)


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


_RULES = (
    *RULES,
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
    """How many outputs to generate for the prompt, each drawn on its own."""
    best_of: int | None = field(default=None, repr=False)
    """Refused, as in vLLM V1: use `n`."""
    presence_penalty: float = 0.0
    """Taken off the logits of tokens that were generated already. In [-2, 2]; below 0 encourages them."""
    frequency_penalty: float = 0.0
    """Taken off for each time that a token was generated. In [-2, 2]."""
    repetition_penalty: float = 1.0
    """Scales down the logits of tokens in the prompt or the output. Above 0; below 1 encourages them."""
    temperature: float = 1.0
    """0 is greedy; higher is more random. At least 0; values between 0 and 0.01 become 0.01."""
    top_p: float = 1.0
    """Keep the likeliest tokens that together have this probability. In (0, 1]; 1 keeps all."""
    top_k: int = 0
    """Keep this many of the likeliest tokens; 0 or -1 keeps all."""
    min_p: float = 0.0
    """Keep tokens that are at least this probable, as a share of the likeliest one's probability. In [0, 1]."""
    seed: int | None = None
    """Seed of the request's own random generator; `None` (or -1) shares the engine's."""
    stop: str | list[str] | None = None
    """Strings that end the generation as soon as they appear; not part of the returned text."""
    stop_token_ids: list[int] | None = None
    """Tokens that end the generation."""
    bad_words: list[str] | None = None
    """Words that are not generated: the token that would complete one is forbidden."""
    include_stop_str_in_output: bool = False
    """Keep the stop string at the end of the text."""
    ignore_eos: bool = False
    """Go on after the end-of-sequence token."""
    max_tokens: int | None = 16
    """The most tokens to generate; `None` goes on to the model's length."""
    min_tokens: int = 0
    """No end-of-sequence or stop token before this many tokens were generated."""
    logprobs: int | None = None
    """Report so many of the likeliest tokens with their log probabilities at each generated token, and always the
    generated one (so `logprobs + 1` at most). -1: all tokens; `None`: none."""
    prompt_logprobs: int | None = None
    """The same for each token of the prompt."""
    detokenize: bool = field(default=True, repr=False)
    """Turn the generated tokens into text."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    spaces_between_special_tokens: bool = True
    """False: no spaces between added tokens, where the tokenizer puts some and `skip_special_tokens` is off."""
    logits_processors: list[Any] | None = field(default=None, repr=False)
    """Refused, as in vLLM V1."""
    truncate_prompt_tokens: int | None = None
    """Keep only the last so many tokens of a prompt that is text. -1: as many as the model's length; `None`: all."""
    output_kind: RequestOutputKind = field(default=RequestOutputKind.CUMULATIVE, repr=False)
    structured_outputs: StructuredOutputsParams | None = None
    """The form that the output must have."""
    guided_decoding: StructuredOutputsParams | None = field(default=None, repr=False)
    """The older name of `structured_outputs`; deprecated."""
    logit_bias: dict[int, float] | None = field(default=None, repr=False)
    """Added to the logits of these tokens."""
    allowed_token_ids: list[int] | None = field(default=None, repr=False)
    """Only these tokens are generated."""
    extra_args: dict[str, Any] | None = None
    """For one's own extensions; the engine does not read it."""
    skip_reading_prefix_cache: bool | None = field(default=None, repr=False)
    """Compute the whole prompt, whatever the prefix cache holds. `None`: when `prompt_logprobs` need it."""

    output_text_buffer_length: int = field(default=0, init=False, repr=False)
    """Characters to hold back while streaming, as they may turn out to begin a stop string."""
    _all_stop_token_ids: set[int] = field(default_factory=set, init=False, repr=False)
    _bad_words_token_ids: list[list[int]] | None = field(default=None, init=False, repr=False)

    def __new__(cls, *args: object, **kwargs: object) -> "SamplingParams":
        """Refuse unknown names before `__init__` does, with what is accepted."""
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
        verify_combinations(self)
        self._take_over_guided_decoding()
        self.stop, self.stop_token_ids, self.bad_words = (
            list(self.stop),
            list(self.stop_token_ids),
            list(self.bad_words),
        )
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

    def _take_over_guided_decoding(self) -> None:
        if self.guided_decoding is None:
            return
        warnings.warn(
            "guided_decoding is deprecated, as in vLLM 0.11: use structured_outputs.", DeprecationWarning, stacklevel=4
        )
        self.structured_outputs, self.guided_decoding = self.guided_decoding, None

    @staticmethod
    def from_optional(**parameters: Any) -> "SamplingParams":
        """As the constructor, for a server: `None` stands for the default of any number, and `logit_bias` is as in
        OpenAI's API, where its keys may be strings and its values are cut to [-100, 100].
        """
        for name in _NUMBERS_WITH_DEFAULT:
            if parameters.get(name, 0) is None:
                del parameters[name]
        logit_bias = parameters.get("logit_bias")
        if isinstance(logit_bias, Mapping):
            try:
                cut = {int(token): min(_MAX_BIAS, max(-_MAX_BIAS, bias)) for token, bias in logit_bias.items()}
            except (TypeError, ValueError):
                raise EngineError(
                    f"SamplingParams: `logit_bias` must map token ids to numbers, got {logit_bias!r}."
                ) from None
            parameters["logit_bias"] = cut
        return SamplingParams(**parameters)

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

    def update_from_tokenizer(self, tokenizer: "PreTrainedTokenizerFast") -> None:
        """Turn the bad words into sequences of tokens: each as it begins a text, and as it follows a space.

        The second is left out when the space is a token of its own or changes how many tokens the word has.

        Raises:
            InvalidRequestError: the tokenizer makes no token of a word.
        """
        if not self.bad_words:
            return
        self._bad_words_token_ids = []
        for word in self.bad_words:
            first, spaced = (tokenizer.encode(space + word.lstrip(), add_special_tokens=False) for space in ("", " "))
            if not first or not spaced:
                raise InvalidRequestError(f"SamplingParams: the tokenizer makes no token of {word!r} in `bad_words`.")
            self._bad_words_token_ids.append(first)
            if spaced[0] != first[0] and len(spaced) == len(first):
                self._bad_words_token_ids.append(spaced)

    @cached_property
    def sampling_type(self) -> SamplingType:
        """Greedy, random, or random with the request's own seed."""
        if self.temperature == 0:
            return SamplingType.GREEDY
        return SamplingType.RANDOM if self.seed is None else SamplingType.RANDOM_SEED

    @property
    def all_stop_token_ids(self) -> set[int]:
        """Every token that may end the request: its own stop tokens and the model's end-of-sequence tokens."""
        return self._all_stop_token_ids

    @property
    def bad_words_token_ids(self) -> list[list[int]] | None:
        """The bad words as sequences of tokens; `None` before `update_from_tokenizer`, or without bad words."""
        return self._bad_words_token_ids

    def clone(self) -> "SamplingParams":
        """A copy that can be completed without touching the user's own."""
        return copy.deepcopy(self)
