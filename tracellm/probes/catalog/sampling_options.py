"""Sampling parameters of a request: those that differ from their defaults, and those that act on its logits.

They do not change while the request runs, so they are read once.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Any

import msgspec

__all__ = ["LogitOptions", "active_processors", "changed_parameters", "logit_options"]

_MAX_CHARACTERS = 300
_TEXTS = ("stop", "bad_words", "structured_outputs", "extra_args")
"""Parameters whose values hold a user's text."""
_SHOWN_ELSEWHERE = ("n", "output_kind", "guided_decoding", "output_text_buffer_length", "skip_clone")
_NO_DEFAULT = (MISSING, msgspec.NODEFAULT)

# -- changed parameters -----------------------------------------------------------------------------------------------


def changed_parameters(params: Any, own_stops: frozenset[int] = frozenset()) -> tuple[list[str], list[str]]:
    """Return the parameters that differ from their defaults, as `name=value`: those without user text, those with it.

    `own_stops` are the stop tokens that the engine adds from the model's configuration.
    """
    plain_values, texts = [], []
    defaults = _defaults(type(params))  # type: ignore[arg-type]
    for name, default in defaults.items():
        value = getattr(params, name)
        if name == "stop_token_ids":
            value = [token for token in value or () if token not in own_stops] or default
        if _differs(value, default):
            if name in _TEXTS:
                texts.append(f"{name}={_structure(value) if name == 'structured_outputs' else value}"[:_MAX_CHARACTERS])
            else:
                plain_values.append(f"{name}={_shortened(value)}"[:_MAX_CHARACTERS])
    return plain_values, texts


def _shortened(value: Any) -> Any:
    """Cut a long list or dict: each item takes at least one of the characters that are kept."""
    if isinstance(value, list):
        return value[:_MAX_CHARACTERS]
    return dict(islice(value.items(), _MAX_CHARACTERS)) if isinstance(value, dict) else value


@cache
def _defaults(kind: type) -> dict[str, Any]:
    """Return the defaults of a dataclass (tracellm's) or a msgspec struct (vLLM's) by name, without an instance."""
    all_fields: Iterable[Any] = fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind)
    return {
        field.name: _default_of(field)
        for field in all_fields
        if not field.name.startswith("_") and field.name not in _SHOWN_ELSEWHERE
    }


def _default_of(field: Any) -> Any:
    if field.default not in _NO_DEFAULT:
        return field.default
    return None if field.default_factory in _NO_DEFAULT else field.default_factory()


def _differs(value: Any, default: Any) -> bool:
    """Return whether a parameter was set. Both engines replace some defaults of None, by False or an empty list."""
    return value != default and not (default is None and (value is False or value == []))


def _structure(params: Any) -> str:
    """Return the fields of a StructuredOutputsParams that are set: `choice=['yes', 'no']`."""
    defaults = _defaults(type(params))  # type: ignore[arg-type]
    return ", ".join(
        f"{name}={value}" for name, default in defaults.items() if _differs(value := getattr(params, name), default)
    )


# -- parameters that act on the logits --------------------------------------------------------------------------------


LogitOptions = tuple[tuple[str, ...], int, tuple[str, ...]]
"""Names of the parameters that act on a request's logits, in the sampler's order: those before `min_tokens`, the value
of `min_tokens`, those after it."""


def logit_options(params: Any) -> LogitOptions:
    """Return the parameters that act on the logits. A temperature of 1 changes nothing, and a greedy row ignores those
    that cannot change which token is the likeliest."""
    cached = _options.get(id(params))
    if cached is not None and cached[0] is params:
        return cached[1]
    if len(_options) >= _MAX_OPTIONS:
        _options.clear()
    options = _names(params, _BEFORE_MIN_TOKENS), params.min_tokens, _names(params, _AFTER_MIN_TOKENS)
    if params.temperature:
        options = (*options[:2], options[2] + _names(params, _RANDOM_ROWS_ONLY))
    _options[id(params)] = params, options
    return options


_options: dict[int, tuple[Any, LogitOptions]] = {}
"""Options by the id of the parameters, with a reference that keeps the id taken."""
_MAX_OPTIONS = 1024

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
_RANDOM_ROWS_ONLY: dict[str, Callable[[Any], bool]] = {
    "temperature": lambda params: params.temperature != 1,
    "min_p": lambda params: bool(params.min_p),
    "top_k": lambda params: params.top_k > 0,
    "top_p": lambda params: params.top_p < 1,
}


def _names(params: Any, conditions: dict[str, Callable[[Any], bool]]) -> tuple[str, ...]:
    return tuple(name for name, holds in conditions.items() if holds(params))


def active_processors(options: LogitOptions, num_output_tokens: int) -> tuple[str, ...]:
    """Return the parameters that act on the logits of a request after this many output tokens."""
    before, min_tokens, after = options
    return (*before, "min_tokens", *after) if num_output_tokens < min_tokens else before + after
