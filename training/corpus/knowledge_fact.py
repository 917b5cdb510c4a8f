"""Type of a row in the tables of common knowledge."""

from typing import NamedTuple

__all__ = ["Fact"]


class Fact(NamedTuple):
    """One fact; the answer contains `key`, and `questions` and `beginnings` are templates."""

    answer: str
    key: str
    questions: tuple[str, ...]
    beginnings: tuple[str, ...] = ()
