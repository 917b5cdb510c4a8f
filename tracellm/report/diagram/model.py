"""A sequence diagram as plain data, before it is written as Mermaid or drawn on the page.

`sequence.py` builds it from a trace, `mermaid.py` writes it as text, and the HTML report draws it in the browser. Texts
are unescaped: each writer escapes its own way.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tracellm.trace.steps import Step

__all__ = [
    "Box",
    "Close",
    "Diagram",
    "Item",
    "Lifelines",
    "Loop",
    "Message",
    "Note",
    "Participant",
    "check_diagram",
    "messages",
]


@dataclass(frozen=True, slots=True)
class Participant:
    """A lifeline: a class of the engine, a module, or the user's script."""

    id: str
    """Unique in the diagram, and safe everywhere: ASCII letters, digits and `_`, never a word of Mermaid's."""
    label: str
    """The text that is shown."""
    below: str = ""
    """A second line: the method that a thread or a task runs."""
    process: int = field(default=0, compare=False)
    """Process id of its calls; negative for what is outside of the recorded processes."""


@dataclass(frozen=True, slots=True)
class Box:
    """Neighbouring lifelines of one process."""

    label: str
    participants: tuple[str, ...]
    """Their ids, in the order drawn."""


@dataclass(frozen=True, slots=True)
class Lifelines:
    """The lifelines of a tree that is to be drawn.

    Attributes:
        participants: from left to right.
        boxes: one for each process, if there is more than one, or something outside of it.
        ends: the ids of the lifelines that the arrow of a call leaves and reaches, by `id(node)` of the call.
    """

    participants: tuple[Participant, ...]
    boxes: tuple[Box, ...]
    ends: Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Message:
    """An arrow from one lifeline to another, or to itself.

    A `call` may open an activation on its target (`opens`). A `return` (dashed) or an `error` (dashed, ends in a cross)
    leaves the called lifeline and closes its activation (`closes`). A `message` goes to another process, thread or
    task, and the sender does not wait: it ends in an open head.
    """

    source: str
    target: str
    text: str
    kind: Literal["call", "return", "error", "message"] = "call"
    opens: bool = False
    closes: bool = False
    spans: tuple[str, ...] = ()
    """Ids of the spans of the arrow, ordered by start; several for repeated calls. A return has those of its call."""
    inside: tuple[str, ...] = ()
    """Ids of the spans of calls inside that have no arrow of their own."""
    single: str = field(default="", compare=False)
    """The text without a count, if the count is not the same each time that the call around it ran."""


@dataclass(frozen=True, slots=True)
class Close:
    """The end of an activation that no drawn return closes."""

    participant: str


@dataclass(frozen=True, slots=True)
class Note:
    """A text over lifelines: a phase's heading over all of them, or a remark over one or some."""

    first: str
    last: str
    text: str
    phase: bool = False
    """True for a heading that divides the diagram: start-up, generation."""
    steps: tuple[Step, ...] = field(default=(), compare=False)
    """The engine step whose heading this is."""
    length: int = field(default=0, compare=False)
    """Number of the items after it that are part of this step."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A frame around items that happened several times, drawn once."""

    text: str
    items: tuple["Item", ...]
    count: int
    steps: tuple[Step, ...] = field(default=(), compare=False)
    """The engine steps that are drawn as one; empty for other loops."""


Item = Message | Close | Note | Loop
"""An element of a diagram, from top to bottom."""


@dataclass(frozen=True, slots=True)
class Diagram:
    """A whole sequence diagram.

    Each participant is in one box, or there are no boxes; the participants of a box are neighbours.
    """

    participants: tuple[Participant, ...]
    items: tuple[Item, ...]
    boxes: tuple[Box, ...] = ()
    remark: str = ""
    """A remark about the whole diagram: the number of calls that are not drawn."""
    left_out: int = 0
    """The number in the remark."""
    inside: tuple[str, ...] = ()
    """Ids of the spans that are in no arrow's `inside`, such as those of calls that the script itself made."""


def messages(items: Iterable[Item]) -> Iterator[Message]:
    """Yield every arrow among `items`, from top to bottom, those within loops too."""
    for item in items:
        if isinstance(item, Message):
            yield item
        elif isinstance(item, Loop):
            yield from messages(item.items)


def check_diagram(diagram: Diagram) -> None:
    """Assert what drawings rely on: known lifelines, whole boxes, activations closed in the loop that opened them."""
    known = [participant.id for participant in diagram.participants]
    assert len(set(known)) == len(known), "two lifelines share an id"
    if diagram.boxes:
        assert [id for box in diagram.boxes for id in box.participants] == known, (
            "boxes do not hold the lifelines in order"
        )
    _check_items(diagram.items, set(known))


def _check_items(items: tuple[Item, ...], known: set[str]) -> None:
    open_on: list[str] = []
    for item in items:
        if isinstance(item, Loop):
            _check_items(item.items, known)
        elif isinstance(item, Note):
            assert {item.first, item.last} <= known, f"a note over an unknown lifeline: {item}"
        elif isinstance(item, Close):
            assert open_on[-1:] == [item.participant], f"closes what is not open: {item}"
            open_on.pop()
        else:
            assert {item.source, item.target} <= known, f"an arrow to an unknown lifeline: {item}"
            if item.closes:
                assert open_on[-1:] == [item.source], f"closes what is not open: {item}"
                open_on.pop()
            if item.opens:
                open_on.append(item.target)
    assert not open_on, f"left open: {open_on}"
