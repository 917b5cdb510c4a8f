"""The last pass: the nodes to be drawn become the arrows, loops and notes of a `Diagram`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tracellm.report.diagram.lifelines import LONGEST_NAME
from tracellm.report.diagram.model import Close, Diagram, Item, Lifelines, Loop, Message, Note, Participant, messages
from tracellm.report.diagram.story import DiagramTree
from tracellm.report.texts import text
from tracellm.report.tree.nodes import Node, raised_here, walk
from tracellm.report.wording.request_names import request_names
from tracellm.report.wording.safe_text import shorten
from tracellm.report.wording.titles import (
    call_title,
    ended_from_outside,
    error,
    error_class,
    message_title,
    result,
    script_of,
    steps_name,
    steps_title,
    times,
)
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import Step

__all__ = ["lay_out"]

LONGEST_VALUES = 42
"""Characters of arguments or of a result."""
LONGEST_NOTE = 160

_PHASES = {
    "run_server": "startup",
    "AsyncLLM.from_vllm_config": "startup",
    "AsyncLLM.__init__": "startup",
    "AsyncLLM.generate": "generation",
}
"""Calls that open a phase in a server, which has no script lines."""


def lay_out(tree: DiagramTree) -> DiagramTree:
    """Make arrows, loops and notes of the calls of a tree whose lifelines are named.

    The root of a program is its script's lifeline and no arrow. Times play no part: equal runs give equal diagrams.
    """
    roots = [root for root in tree.roots if any(node.kind == "call" for node in walk([root]))]
    lifelines = tree.lifelines
    if lifelines is None or not lifelines.participants:
        nothing = Note("P1", "P1", text(tree.lang, "diagram.nothing"))
        return replace(tree, diagram=Diagram((Participant("P1", "tracellm"),), (nothing,)))
    layout = _Layout(tree, lifelines)
    items = tuple(item for root in roots for item in layout.root(root)) + layout.rest(*tree.rest)
    inside = tuple(id for root in roots for id in _drawn_nowhere(root, tree))
    key, left_out = tree.remark or ("", 0)
    remark = text(tree.lang, key, count=left_out) if key else ""
    return replace(tree, diagram=Diagram(lifelines.participants, items, lifelines.boxes, remark, left_out, inside))


def _drawn_nowhere(root: Node, tree: DiagramTree) -> Iterator[str]:
    """Yield the span ids of calls that have no arrow and are in no arrow's `inside`."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.kind == "call" and node.span.span_id in tree.story.messages:
            yield from (id for below in walk(node.children) for id in _ids([*below.spans, *below.hidden]))
            continue
        if node.kind != "call" or (node is root and script_of(node.span)):
            yield from _ids(node.hidden)
        stack += reversed(node.children)


class _Layout:
    def __init__(self, tree: DiagramTree, lifelines: Lifelines) -> None:
        self._story = tree.story
        self._names = request_names(tree.trace)
        self._returns = tree.returns
        self._lang = tree.lang
        self._ends = lifelines.ends
        self._outermost = lifelines.participants[0].id, lifelines.participants[-1].id
        self._phase = ""

    def root(self, root: Node) -> list[Item]:
        """Return the items of a root, from top to bottom."""
        if root.kind != "call" or not script_of(root.span):
            return self._node(root, root, 1)
        items = self._phase_note(root) + self._below(root, root)
        if root.failed:
            start = self._ends[id(root)][1]
            label = shorten(error(root.span, LONGEST_NOTE), LONGEST_NOTE)
            items.append(Note(start, start, label))
        return items

    def rest(self, steps: Sequence[Step], alike: bool) -> tuple[Item, ...]:
        """Return a note about the steps at the end of the run of which no call is drawn."""
        if not steps:
            return ()
        key = f"diagram.rest_{'alike' if alike else 'left_out'}"
        return (Note(*self._outermost, text(self._lang, key, steps=steps_name(steps, self._lang))),)

    def _below(self, node: Node, around: Node) -> list[Item]:
        return [item for child in node.children for item in self._node(child, around, node.count)]

    def _node(self, node: Node, around: Node, of: int) -> list[Item]:
        """Return the items of a node within `around`, the nearest enclosing call drawn, which ran `of` times."""
        if node.kind == "call":
            return self._call(node, around, of)
        if node.kind in ("line", "repeat"):
            return self._repeated(self._below(node, around), node, of)
        title = steps_title(node.steps, self._names, self._lang)
        below = self._below(node, around)
        if not below:
            return []
        if len(node.steps) > of:
            if len(node.steps) % of == 0:
                title = text(self._lang, "diagram.times", title=title, count=len(node.steps) // of)
            return [Loop(title, tuple(below), len(node.steps), tuple(node.steps))]
        # over the lifelines that make and take the step, so that the note has room
        first = next(messages(below))
        heading = shorten(title, LONGEST_NOTE)
        return [Note(first.source, first.target, heading, steps=tuple(node.steps), length=len(below)), *below]

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
            return [self._message(node, of)]
        heading = self._phase_note(node)
        source, target = self._ends[id(node)]
        below = self._below(node, node)
        title = call_title(node.span, LONGEST_NAME, LONGEST_VALUES)
        if node.open:
            title = text(self._lang, "calltree.open", name=title)
        elif self._story.is_long(node.span) and node.failed and not ended_from_outside(node.span):
            title = f"{title} ✗ {error_class(node.span)}"  # the end is far below
        # repeated calls with arrows below them stand in a loop; without, one line has a count
        single = title if node.count % of else ""
        if often := "" if below and node.count % of == 0 else times(node.count, of, self._lang):
            title = f"{title} {often}"
        spans, inside = _ids(node.spans), _ids(node.hidden)
        drawn_return = id(node) in self._returns
        opens = (bool(below) and not self._story.is_long(node.span)) or drawn_return
        arrow = Message(source, target, title, opens=opens, spans=spans, inside=inside, single=single)
        items: list[Item] = [arrow, *below]
        if drawn_return and node.failed:
            # for the callers that it passes, the exception's class is enough
            label = error(node.span, LONGEST_VALUES) if raised_here(node) else error_class(node.span)
            items.append(Message(target, source, label, kind="error", closes=True, spans=spans))
        elif drawn_return:
            label = result(node.span, LONGEST_VALUES)
            items.append(Message(target, source, label, kind="return", closes=True, spans=spans))
        elif opens:
            items.append(Close(target))
        if below and node.count % of == 0 and node.count > of:
            often = text(self._lang, "diagram.repeated", count=node.count // of)
            items = [Loop(often, tuple(items), node.count)]
        return heading + items

    def _message(self, node: Node, of: int) -> Message:
        source, target = self._ends[id(node)]
        sent = [self._story.messages[span.span_id] for span in node.spans if span.span_id in self._story.messages]
        title = message_title([(one.message, one.step) for one in sent], self._names, self._lang)
        single = title if node.count % of else ""
        if often := times(node.count, of, self._lang):
            title = f"{title} {often}"
        spans, inside = _ids(node.spans), _ids(node.hidden)
        return Message(source, target, title, "message", spans=spans, inside=inside, single=single)

    def _phase_note(self, node: Node) -> list[Item]:
        """Return a heading over all lifelines if another phase begins."""
        phase = node.span.attributes.get(names.PHASE) or _PHASES.get(node.span.name)
        if node.span.attributes.get(names.HTTP_METHOD) == "POST":
            phase = "generation"
        if phase not in ("startup", "generation") or phase == self._phase:
            return []
        self._phase = phase
        return [Note(*self._outermost, text(self._lang, f"diagram.{phase}"), phase=True)]


def _ids(spans: Iterable[Span]) -> tuple[str, ...]:
    return tuple([span.span_id for span in spans])
