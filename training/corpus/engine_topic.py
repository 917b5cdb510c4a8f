"""Type of a row in the tables of engine facts."""

from typing import NamedTuple

__all__ = ["Topic"]


class Topic(NamedTuple):
    """One part of an engine.

    Attributes:
        names: its names, the usual one first.
        key: a part of every right answer.
        short: one sentence that begins with the name.
        long: a longer explanation, or empty.
        questions: phrasings and answers of particular questions.
    """

    names: tuple[str, ...]
    key: str
    short: str
    long: str = ""
    questions: tuple[tuple[tuple[str, ...], str], ...] = ()
