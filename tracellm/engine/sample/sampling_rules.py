"""What each sampling parameter may be, and which of them go together. `SamplingParams` is held against it when made.

vLLM: vllm/sampling_params.py::SamplingParams._verify_args, which accepts some more: values of a wrong type, and numbers
that are none (NaN); these fail there later, in the engine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.validation import NUMBER, Rule, all_are, anything, is_a

if TYPE_CHECKING:
    from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["RULES", "verify_combinations"]

_LARGEST_SEED = 2**64 - 1
_TOO_LARGE = 2**127  # the sampler computes in float32, which ends at 2**128


def _is_bias(bias: Any) -> bool:
    return is_a(bias, NUMBER) and (-_TOO_LARGE < bias < _TOO_LARGE or bias == -math.inf)


def _are_biases(logit_bias: dict[Any, Any]) -> bool:
    return all(is_a(token, int) and _is_bias(bias) for token, bias in logit_bias.items())


_LOGPROBS = "a whole number, at least 0, or -1 for the whole vocabulary, or None"
RULES = (
    # vLLM 0.11.1 sets no bound; later versions set this one, which VLLM_MAX_N_SEQUENCES changes there.
    Rule("n", int, lambda v: 1 <= v <= 16384, "a whole number from 1 to 16384"),
    Rule("presence_penalty", NUMBER, lambda v: -2 <= v <= 2, "a number in [-2, 2] (0 is none)"),
    Rule("frequency_penalty", NUMBER, lambda v: -2 <= v <= 2, "a number in [-2, 2] (0 is none)"),
    Rule("repetition_penalty", NUMBER, lambda v: 0 < v < _TOO_LARGE, "a number above 0 and below 2**127 (1 is none)"),
    Rule("temperature", NUMBER, lambda v: 0 <= v < _TOO_LARGE, "a number, at least 0 and below 2**127 (0 is greedy)"),
    Rule("top_p", NUMBER, lambda v: 0 < v <= 1, "a number in (0, 1] (1 keeps all tokens)"),
    Rule("top_k", int, lambda v: v >= -1, "a whole number: at least 1, or 0 (or -1) to keep all tokens"),
    Rule("min_p", NUMBER, lambda v: 0 <= v <= 1, "a number in [0, 1] (0 keeps all tokens)"),
    Rule("seed", int, lambda v: -(2**63) <= v <= _LARGEST_SEED, "a whole number of 64 bits, or None"),
    Rule("max_tokens", int, lambda v: v >= 1, "a whole number, at least 1, or None"),
    Rule("min_tokens", int, lambda v: v >= 0, "a whole number, at least 0"),
    Rule("stop", (list, tuple), all_are(str, bool), "a string or a list of strings, none of them empty"),
    Rule("stop_token_ids", (list, tuple), all_are(int, lambda v: v >= 0), "a list of token ids (0 or more)"),
    Rule("bad_words", (list, tuple), all_are(str, lambda v: bool(v.strip())), "a list of strings, none of them blank"),
    Rule("logprobs", int, lambda v: v >= -1, _LOGPROBS),
    Rule("prompt_logprobs", int, lambda v: v >= -1, _LOGPROBS),
    Rule(
        "truncate_prompt_tokens",
        int,
        lambda v: v == -1 or v >= 1,
        "a whole number, at least 1, or -1 for the model's length, or None",
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
)


def verify_combinations(params: SamplingParams) -> None:
    """Refuse parameters that are right each for itself, but not together, and those that vLLM V1 has no more.

    Raises:
        EngineError: names the parameters and what to do.
    """
    if params.best_of not in (None, 1) or (params.best_of == 1 and params.n > 1):
        raise EngineError(
            f"SamplingParams: `best_of={params.best_of!r}` is not supported, as in vLLM V1: ask for as many outputs "
            "with `n` and logprobs=0, and keep those with the highest `cumulative_logprob`."
        )
    if params.logits_processors:
        raise EngineError(
            f"SamplingParams: `logits_processors={params.logits_processors!r}` are not supported, as in vLLM V1: use "
            "`logit_bias`, `allowed_token_ids`, `bad_words` or `structured_outputs`."
        )
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise EngineError(
            f"SamplingParams: `min_tokens` must be at most `max_tokens`={params.max_tokens}, got {params.min_tokens}."
        )
    if params.stop and not params.detokenize:
        raise EngineError("SamplingParams: `stop` strings need the text: use `detokenize=True` or `stop_token_ids`.")
    if params.n > 1 and params.temperature == 0:
        raise EngineError(
            f"SamplingParams: `n` must be 1 for greedy sampling (`temperature=0`), where all outputs would be equal; "
            f"got {params.n}. Raise `temperature`."
        )
    if params.seed is not None and params.seed + params.n - 1 > _LARGEST_SEED:
        raise EngineError(
            f"SamplingParams: `seed` must be at most {_LARGEST_SEED - params.n + 1} with `n={params.n}`, as each "
            f"output has a seed of its own, counted up from it; got {params.seed}."
        )
