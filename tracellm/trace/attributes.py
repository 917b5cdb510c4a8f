"""Definition of attributes: name, type and meaning of each, in groups.

`tracellm.trace.names` defines all attributes with these classes.
"""

from dataclasses import dataclass

__all__ = ["ATTRIBUTES", "Attribute", "Group"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute; docs/spans.md lists them.

    Attributes:
        name: its name in the recording.
        type: type of its value: str, int, float, bool, or one of these with `[]`.
        description: meaning, for docs/spans.md.
        private: whether it may hold text that a user wrote or a model generated.
        group: title of its group.
        on: names of the spans that may have it; empty for any call.
    """

    name: str
    type: str
    description: str
    private: bool
    group: str
    on: tuple[str, ...]


ATTRIBUTES: dict[str, Attribute] = {}
"""Every attribute by its name, in the order of docs/spans.md."""


class Group:
    """Defines attributes of one subject, one after the other."""

    def __init__(self, title: str, *, on: tuple[str, ...] = ()) -> None:
        """Begin a group; `on` is the default for its attributes."""
        self._title = title
        self._on = on

    def __call__(
        self, name: str, type: str, description: str, *, private: bool = False, on: tuple[str, ...] | None = None
    ) -> str:
        """Define an attribute, and return its name."""
        ATTRIBUTES[name] = Attribute(name, type, description, private, self._title, self._on if on is None else on)
        return name
