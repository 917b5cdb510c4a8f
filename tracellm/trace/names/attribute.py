"""Definitions of attributes."""

from dataclasses import dataclass

__all__ = ["ATTRIBUTES", "Attribute", "Group"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute. docs/spans.md is made of these.

    Attributes:
        name: as it stands in the recording.
        type: of its value: str, int, float, bool, or one of these with `[]`.
        says: its description.
        private: whether it may hold text that a user wrote or a model generated.
        group: what it is about, with others.
        on: the spans that may carry it, by name; empty for any call.
    """

    name: str
    type: str
    says: str
    private: bool
    group: str
    on: tuple[str, ...]


ATTRIBUTES: dict[str, Attribute] = {}
"""Every attribute by its name, in the order of docs/spans.md."""


class Group:
    """Defines attributes that are about one thing, one after the other."""

    def __init__(self, title: str, *, on: tuple[str, ...] = ()) -> None:
        """`on`: the spans that may carry them, where an attribute has none of its own."""
        self._title = title
        self._on = on

    def __call__(
        self, name: str, type: str, says: str, *, private: bool = False, on: tuple[str, ...] | None = None
    ) -> str:
        """Define an attribute; returns its name."""
        ATTRIBUTES[name] = Attribute(name, type, says, private, self._title, self._on if on is None else on)
        return name
