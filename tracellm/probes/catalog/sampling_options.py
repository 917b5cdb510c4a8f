"""What a request's sampling parameters ask for: which of them were chosen, and which act on its logits.

They do not change while the request runs, so what is read off them is read once.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Any

import msgspec

__all__ = ["Asked", "asked_of", "changed_parameters", "processors_of"]

_LONGEST_VALUE = 300
_TEXTS = ("stop", "bad_words", "structured_outputs", "extra_args")
"""Parameters whose values are a user's texts."""
_SAID_ELSEWHERE = ("n", "output_kind", "guided_decoding", "output_text_buffer_length", "skip_clone")

# -- what was asked for -----------------------------------------------------------------------------------------------


def changed_parameters(params: Any, own_stops: frozenset[int] = frozenset()) -> tuple[list[str], list[str]]:
    """The sampling parameters that differ from their defaults, as `name=value`: those without a text, and with one.

    `own_stops` are the stop tokens that the model brings along, which nobody chose.
    """
    plain_values, texts = [], []
    usual = _defaults(type(params))  # type: ignore[arg-type]
    for name, default in usual.items():
        value = getattr(params, name)
        if name == "stop_token_ids":
            value = [token for token in value or () if token not in own_stops] or default
        if value != default:
            if name in _TEXTS:
                texts.append(f"{name}={_structure(value) if name == 'structured_outputs' else value}"[:_LONGEST_VALUE])
            else:
                plain_values.append(f"{name}={_begin_of(value)}"[:_LONGEST_VALUE])
    return plain_values, texts


def _begin_of(value: Any) -> Any:
    """Of many values no more than are told: each takes a character at least, and the request waits meanwhile."""
    if isinstance(value, list):
        return value[:_LONGEST_VALUE]
    return dict(islice(value.items(), _LONGEST_VALUE)) if isinstance(value, dict) else value


@cache
def _defaults(kind: Callable[[], Any]) -> dict[str, Any]:
    """What is in a set of parameters in which nothing was set, by name; of vLLM's, which are msgspec's, as of ours."""
    known = fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind)  # type: ignore[arg-type]
    told = [one for one in known if not one.name.startswith("_") and one.name not in _SAID_ELSEWHERE]
    try:
        usual = kind()
    except ValueError:  # some may not be empty
        return {one.name: one.default for one in told}
    return {one.name: getattr(usual, one.name) for one in told}


def _structure(params: Any) -> str:
    """`choice=['yes', 'no']`: what is set of a StructuredOutputsParams."""
    usual = _defaults(type(params))  # type: ignore[arg-type]
    return ", ".join(
        f"{name}={value}" for name, default in usual.items() if (value := getattr(params, name)) != default
    )


# -- what acts on the logits ------------------------------------------------------------------------------------------


Asked = tuple[tuple[str, ...], int, tuple[str, ...]]
"""What a request's parameters want to act on its logits, in the sampler's order, by the names of the parameters:
before `min_tokens`, the number of these, and after."""


def asked_of(params: Any) -> Asked:
    """What is asked for by these parameters; a temperature of 1 changes nothing, and greedy rows end before those that
    cannot change which token is the likeliest."""
    known = _asked.get(id(params))
    if known is not None and known[0] is params:
        return known[1]
    if len(_asked) >= _MOST_ASKED:
        _asked.clear()
    asked = _names(params, _BEFORE_MIN_TOKENS), params.min_tokens, _names(params, _AFTER_MIN_TOKENS)
    if params.temperature:
        asked = (*asked[:2], asked[2] + _names(params, _OF_RANDOM_ROWS))
    _asked[id(params)] = params, asked
    return asked


_asked: dict[int, tuple[Any, Asked]] = {}
"""By the parameters' id, with them, so that no others come to have it: parameters do not change, and steps are many."""
_MOST_ASKED = 1024

_BEFORE_MIN_TOKENS: dict[str, Callable[[Any], bool]] = {
    "structured_outputs": lambda params: params.structured_outputs is not None,
    "allowed_token_ids": lambda params: params.allowed_token_ids is not None,
    "bad_words": lambda params: bool(params.bad_words),
}
_AFTER_MIN_TOKENS: dict[str, Callable[[Any], bool]] = {
    "logit_bias": lambda params: bool(params.logit_bias),
    "repetition_penalty": lambda params: params.repetition_penalty != 1,
    "frequency_penalty": lambda params: bool(params.frequency_penalty),
    "presence_penalty": lambda params: bool(params.presence_penalty),
}
_OF_RANDOM_ROWS: dict[str, Callable[[Any], bool]] = {
    "temperature": lambda params: params.temperature != 1,
    "min_p": lambda params: bool(params.min_p),
    "top_k": lambda params: params.top_k > 0,
    "top_p": lambda params: params.top_p < 1,
}


def _names(params: Any, questions: dict[str, Callable[[Any], bool]]) -> tuple[str, ...]:
    return tuple(name for name, asks in questions.items() if asks(params))


def processors_of(asked: Asked, num_output_tokens: int) -> tuple[str, ...]:
    """What acts on the logits of a request that asked for this and has generated so many tokens."""
    before, min_tokens, after = asked
    return (*before, "min_tokens", *after) if num_output_tokens < min_tokens else before + after
