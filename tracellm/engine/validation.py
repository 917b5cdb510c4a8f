"""Checking a user's values by a table: a rule names a value, its type, its range, and says in words what is accepted.

Used by `SamplingParams` and `EngineArgs`. vLLM does the same checks in code (`_verify_args`) and with pydantic.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tracellm.engine.errors import EngineError

__all__ = ["NUMBER", "Rule", "all_are", "verify"]

NUMBER = (int, float)


class Rule(NamedTuple):
    """What a value must be. `None` passes when `accepted` ends with "or None"; `True` is no number."""

    name: str
    kind: type | tuple[type, ...]
    in_range: Callable[[Any], bool]
    accepted: str


def all_are(kind: type, in_range: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A range for lists: every item is of this type and in this range."""
    return lambda values: all(isinstance(v, kind) and not isinstance(v, bool) and in_range(v) for v in values)


def verify(owner: str, values: object, rules: Sequence[Rule]) -> None:
    """Hold the attributes of `values` against the rules.

    Raises:
        EngineError: names the value, what is accepted, and what was given.
    """
    for name, kind, in_range, accepted in rules:
        value = getattr(values, name)
        if value is None and accepted.endswith("or None"):
            continue
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or not in_range(value):
            raise EngineError(f"{owner}: `{name}` must be {accepted}, got {value!r}.")
