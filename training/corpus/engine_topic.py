"""The shape of one row in the tables of engine facts."""

from typing import NamedTuple

__all__ = ["Topic"]


class Topic(NamedTuple):
    """One thing that an engine is made of.

    Attributes:
        names: how people call it, the usual name first.
        key: a part of every right answer.
        short: one sentence that begins with the name.
        long: a longer explanation, or nothing.
        questions: (phrasings, answer) for what the general phrasings do not ask.
    """

    names: tuple[str, ...]
    key: str
    short: str
    long: str = ""
    questions: tuple[tuple[tuple[str, ...], str], ...] = ()
