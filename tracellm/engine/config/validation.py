"""Checking a user's values by a table: a rule names a value, its type, its range, and says in words what is accepted.

Used by `SamplingParams` and `EngineArgs`. vLLM does the same checks in code (`_verify_args`) and with pydantic.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from tracellm.engine.config.errors import EngineError, unknown_name

__all__ = ["NUMBER", "Rule", "all_are", "anything", "is_a", "refuse_unknown_fields", "verify"]

NUMBER = (int, float)


class Rule(NamedTuple):
    """What a value must be. `None` passes when `accepted` ends with "or None"; `True` is no number."""

    name: str
    kind: type | tuple[type, ...]
    in_range: Callable[[Any], bool]
    accepted: str


def refuse_unknown_fields(cls: Any, names: Iterable[str]) -> None:
    """Refuse arguments that the constructor of the dataclass `cls` does not take.

    Raises:
        EngineError: names the first of them, and what is accepted.
    """
    for name in names:
        known = [field.name for field in fields(cls) if field.init]
        if name not in known:
            raise EngineError(unknown_name(cls.__name__, "parameter", name, known))


def anything(value: object) -> bool:
    """The range of a value whose type says enough."""
    return True


def is_a(value: object, kind: type | tuple[type, ...]) -> bool:
    """Is it of this type? As `isinstance`, but `True` is no number."""
    return isinstance(value, kind) and (not isinstance(value, bool) or kind is bool)


def all_are(kind: type, in_range: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A range for lists: every item is of this type and in this range."""
    return lambda values: all(is_a(v, kind) and in_range(v) for v in values)


def verify(owner: str, values: object, rules: Sequence[Rule]) -> None:
    """Hold the attributes of `values` against the rules.

    Raises:
        EngineError: names the value, what is accepted, and what was given.
    """
    for name, kind, in_range, accepted in rules:
        value = getattr(values, name)
        if value is None and accepted.endswith("or None"):
            continue
        if not is_a(value, kind) or not in_range(value):
            raise EngineError(f"{owner}: `{name}` must be {accepted}, got {value!r}.")
