"""The last pass: nodes that are all to be drawn become the arrows, loops and notes of a `Diagram`."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from tracellm.report.diagram.lifelines import LONGEST_NAME, Places
from tracellm.report.diagram.model import Close, Diagram, Item, Loop, Message, Note, Participant, messages
from tracellm.report.diagram.story import Story
from tracellm.report.texts import text
from tracellm.report.tree.nodes import Node, raised_here, walk
from tracellm.report.wording.safe_text import shorten
from tracellm.report.wording.titles import (
    call_title,
    ended_from_outside,
    error,
    error_class,
    message_title,
    result,
    script_of,
    steps_title,
    times,
)
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["lay_out"]

LONGEST_VALUES = 42
"""Characters of what was passed or came back."""
LONGEST_NOTE = 160


_PHASES = {
    "run_server": "startup",
    "AsyncLLM.from_vllm_config": "startup",
    "AsyncLLM.__init__": "startup",
    "AsyncLLM.generate": "generation",
}
"""Calls that open a phase without saying so: a server's phases are those of no one line of a script."""


def lay_out(story: Story, roots: Iterable[Node], returns: Collection[int], lang: str, remark: str = "") -> Diagram:
    """The diagram of these calls of a story; `returns` holds `id(node)` of those whose return is an arrow too.

    `remark` is what is to be said of the whole.

    The root of a program is its script's lifeline and no arrow. Times play no part, so equal runs give equal
    diagrams.
    """
    return _Layout(story, list(roots), returns, lang).diagram(remark)


class _Layout:
    def __init__(self, story: Story, roots: list[Node], returns: Collection[int], lang: str) -> None:
        self._story = story
        self._roots = [root for root in roots if any(node.kind == "call" for node in walk([root]))]
        self._returns = returns
        self._lang = lang
        self._phase = ""
        self._inside: list[str] = []  # the spans of calls that are drawn nowhere, and made in no call that is
        self._places = Places(self._roots, story, lang)
        self._ids = self._places.ids

    def diagram(self, remark: str) -> Diagram:
        if not self._ids:
            nothing = Participant("P1", "tracellm")
            return Diagram((nothing,), (Note("P1", "P1", text(self._lang, "diagram.nothing")),))
        items = tuple(item for root in self._roots for item in self._root(root))
        return Diagram(self._places.participants(), items, self._places.boxes(), remark, tuple(self._inside))

    def _root(self, root: Node) -> list[Item]:
        if root.kind != "call" or not script_of(root.span):
            return self._node(root, root, 1)
        items = self._phase_note(root) + self._below(root, root)
        self._inside += _ids(root.hidden)
        if root.failed:
            start = self._ids[self._places.of(root.span)]
            said = shorten(error(root.span, LONGEST_NOTE), LONGEST_NOTE)
            items.append(Note(start, start, said))
        return items

    def _below(self, node: Node, around: Node) -> list[Item]:
        return [item for child in node.children for item in self._node(child, around, node.count)]

    def _node(self, node: Node, around: Node, of: int) -> list[Item]:
        """What is drawn for a node within `around`, the call drawn last around it, which ran `of` times."""
        if node.kind == "call":
            return self._call(node, around, of)
        self._inside += _ids(node.hidden)
        if node.kind in ("line", "repeat"):
            return self._repeated(self._below(node, around), node, of)
        title = steps_title(node.steps, self._lang)
        below = self._below(node, around)
        if not below:
            return []
        if len(node.steps) > of:
            if len(node.steps) % of == 0:
                title = text(self._lang, "diagram.times", title=title, count=len(node.steps) // of)
            return [Loop(title, tuple(below), len(node.steps))]
        # Over the lifeline that makes the step and the one that takes it, so that the note has room.
        first = next(messages(below))
        return [Note(first.source, first.target, shorten(title, LONGEST_NOTE)), *below]

    def _repeated(self, below: list[Item], node: Node, of: int) -> list[Item]:
        if not below or not (often := times(node.count, of, self._lang)):
            return below
        if node.count % of == 0:
            if len(below) == 1 and isinstance(alone := below[0], Message):
                return [replace(alone, text=f"{alone.text} {often}")]
            often = text(self._lang, "diagram.repeated", count=node.count // of)
        return [Loop(often, tuple(below), node.count)]

    def _call(self, node: Node, around: Node, of: int) -> list[Item]:
        if node.span.span_id in self._story.messages:
            return [self._message(node, around, of)]
        heading = self._phase_note(node)
        caller, callee = self._places.ends(node, around)
        source, target = self._ids[caller], self._ids[callee]
        below = self._below(node, node)
        title = call_title(node.span, LONGEST_NAME, LONGEST_VALUES)
        if node.open:
            title = text(self._lang, "calltree.open", name=title)
        elif self._story.is_long(node.span) and node.failed and not ended_from_outside(node.span):
            title = f"{title} ✗ {error_class(node.span)}"  # where it ended is far below
        # Repeated calls with arrows below them stand in a loop; without, a count says as much in one line.
        if often := "" if below and node.count % of == 0 else times(node.count, of, self._lang):
            title = f"{title} {often}"
        spans, inside = _ids(node.spans), _ids(node.hidden)
        drawn_return = id(node) in self._returns
        opens = (bool(below) and not self._story.is_long(node.span)) or drawn_return
        items: list[Item] = [Message(source, target, title, opens=opens, spans=spans, inside=inside), *below]
        if drawn_return and node.failed:
            # On its way through the callers the exception's class is enough.
            said = error(node.span, LONGEST_VALUES) if raised_here(node) else error_class(node.span)
            items.append(Message(target, source, said, kind="error", closes=True, spans=spans))
        elif drawn_return:
            said = result(node.span, LONGEST_VALUES)
            items.append(Message(target, source, said, kind="return", closes=True, spans=spans))
        elif opens:
            items.append(Close(target))
        if below and node.count % of == 0 and node.count > of:
            often = text(self._lang, "diagram.repeated", count=node.count // of)
            items = [Loop(often, tuple(items), node.count)]
        return heading + items

    def _message(self, node: Node, around: Node, of: int) -> Message:
        source, target = self._places.ends(node, around)
        sent = [self._story.messages[span.span_id] for span in node.spans if span.span_id in self._story.messages]
        title = message_title([(one.message, one.step) for one in sent], self._lang)
        if often := times(node.count, of, self._lang):
            title = f"{title} {often}"
        self._inside += [id for child in walk(node.children) for id in _ids([*child.spans, *child.hidden])]
        return Message(
            self._ids[source],
            self._ids[target],
            title,
            "message",
            spans=_ids(node.spans),
            inside=_ids(node.hidden),
        )

    def _phase_note(self, node: Node) -> list[Item]:
        """A heading over all lifelines where another phase begins."""
        phase = node.span.attributes.get(names.PHASE) or _PHASES.get(node.span.name)
        if node.span.attributes.get(names.HTTP_METHOD) == "POST":
            phase = "generation"
        if phase not in ("startup", "generation") or phase == self._phase:
            return []
        self._phase = phase
        ids = list(self._ids.values())
        return [Note(ids[0], ids[-1], text(self._lang, f"diagram.{phase}"), phase=True)]


def _ids(spans: Iterable[Span]) -> tuple[str, ...]:
    return tuple([span.span_id for span in spans])
