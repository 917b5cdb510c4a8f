"""Table-driven checks of a user's values: a `Rule` names a value, its type and range, and describes what is accepted.

Used for `SamplingParams`, `EngineArgs` and the server's options. vLLM checks in `_verify_args` and with pydantic.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from tracellm.engine.config.errors import EngineError, InvalidRequestError, shorten, unknown_name

__all__ = [
    "NUMBER",
    "Rule",
    "all_are",
    "anything",
    "is_a",
    "reject_unknown_arguments",
    "reject_unknown_fields",
    "verify",
]

NUMBER = (int, float)

_UNSUPPORTED_ARGUMENTS = ("lora_request", "mm_processor_kwargs", "tokenization_kwargs")
"""Arguments of vLLM's methods for unsupported features; None is accepted."""


class Rule(NamedTuple):
    """Accepted values of one field. None passes if `accepted` ends with "or None"; a bool is no number.

    `words` is vLLM's message for a value of the right type that is out of range, if it has one; clients match it.
    """

    name: str
    kind: type | tuple[type, ...]
    in_range: Callable[[Any], bool]
    accepted: str
    words: str = ""


def anything(value: object) -> bool:
    """Accept every value of the right type, as a rule's range."""
    return True


def is_a(value: object, kind: type | tuple[type, ...]) -> bool:
    """Return whether the value is of this type; like `isinstance`, but a bool is no number."""
    return isinstance(value, kind) and (not isinstance(value, bool) or kind is bool)


def all_are(kind: type, in_range: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a range for lists whose items all have this type and range."""
    return lambda values: all(is_a(v, kind) and in_range(v) for v in values)


def verify(owner: str, values: object, rules: Sequence[Rule]) -> None:
    """Check the attributes of `values` against the rules.

    Raises:
        EngineError: names the attribute, what is accepted, and its value.
    """
    for name, kind, in_range, accepted, words in rules:
        value = getattr(values, name)
        if value is None and accepted.endswith("or None"):
            continue
        if words and is_a(value, kind) and not in_range(value):
            raise EngineError(f"{words.format(shorten(value)).rstrip('.')}. {owner}: `{name}` is {accepted}.")
        if not is_a(value, kind) or not in_range(value):
            raise EngineError(f"{owner}: `{name}` must be {accepted}, got {shorten(value)}.")


def reject_unknown_fields(cls: Any, names: Iterable[str]) -> None:
    """Reject arguments that the constructor of the dataclass `cls` does not take.

    Raises:
        EngineError: names the first of them, and what is accepted.
    """
    known = [field.name for field in fields(cls) if field.init]
    for name in names:
        if name not in known:
            raise EngineError(unknown_name(cls.__name__, "parameter", name, known))


def reject_unknown_arguments(method: Callable[..., Any], unknown: Mapping[str, Any]) -> None:
    """Reject what `method` received in its `**unknown`, with a better message than Python's own `TypeError`.

    Raises:
        InvalidRequestError: names the argument, and those that the method takes.
    """
    for name, value in unknown.items():
        if name not in _UNSUPPORTED_ARGUMENTS:
            parameters = inspect.signature(method).parameters.values()
            known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
            raise InvalidRequestError(unknown_name(method.__name__, "argument", name, known))
        if value is not None:
            raise InvalidRequestError(
                f"{method.__name__}: tracellm does not have `{name}`, which vLLM has: leave it out. Got {value!r}, "
                "only None is accepted."
            )
