"""The last pass: nodes that are all to be drawn become the arrows, loops and notes of a `Diagram`."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from tracellm.report.diagram import Box, Close, Diagram, Item, Loop, Message, Note, Participant, messages
from tracellm.report.passes.lifelines import in_order, readable_ids
from tracellm.report.texts import text
from tracellm.report.titles import arguments, error, error_class, result, script_of, steps_title, times
from tracellm.report.visible import shorten, visible
from tracellm.trace import names
from tracellm.trace.model import Process, Span
from tracellm.trace.tree import Node, raised_here, walk

__all__ = ["lay_out"]

LONGEST_NAME = 40
"""Characters of a lifeline's or a method's name."""
LONGEST_VALUES = 42
"""Characters of what was passed or came back."""
LONGEST_NOTE = 160

_Key = tuple[int, str]
"""A lifeline: which process, and whose methods."""


def lay_out(roots: Iterable[Node], returns: Collection[int], lang: str, remark: str = "") -> Diagram:
    """The diagram of these calls; `returns` holds `id(node)` of those whose return is an arrow too.

    `remark` is what is to be said of the whole.

    The root of a program is its script's lifeline and no arrow. Times play no part, so equal runs give equal
    diagrams.
    """
    return _Layout(list(roots), returns, lang).diagram(remark)


class _Layout:
    def __init__(self, roots: list[Node], returns: Collection[int], lang: str) -> None:
        self._roots = [root for root in roots if any(node.kind == "call" for node in walk([root]))]
        self._returns = returns
        self._lang = lang
        self._phase = ""
        self._processes = _processes(self._roots)
        keys = self._lifelines()
        self._ids = dict(
            zip(keys, readable_ids([shorten(visible(name), LONGEST_NAME) for _, name in keys]), strict=True)
        )

    def diagram(self, remark: str) -> Diagram:
        if not self._ids:
            nothing = Participant("P1", "tracellm")
            return Diagram((nothing,), (Note("P1", "P1", text(self._lang, "diagram.nothing")),))
        participants = tuple(
            Participant(id, shorten(visible(name), LONGEST_NAME)) for (_, name), id in self._ids.items()
        )
        items = tuple(item for root in self._roots for item in self._root(root))
        return Diagram(participants, items, self._boxes(), remark)

    def _lifelines(self) -> list[_Key]:
        """Every lifeline, those of a process together."""
        calls: list[tuple[_Key, _Key]] = []
        of_steps: list[tuple[_Key, _Key]] = []
        for root in self._roots:
            self._collect(root, self._root_key(root), calls, of_steps, in_step=False)
        return sorted(in_order(calls, of_steps), key=lambda key: key[0])

    def _collect(
        self, node: Node, caller: _Key, calls: list[tuple[_Key, _Key]], of_steps: list[tuple[_Key, _Key]], in_step: bool
    ) -> bool:
        """Add every caller and callee from `node` down; whether a step is among them."""
        callee = self._key(node.span) if node.kind == "call" else caller
        in_step = in_step or node.kind == "steps"
        before, number = len(of_steps), len(calls)
        calls.append((caller, callee))
        leads = [self._collect(child, callee, calls, of_steps, in_step) for child in node.children]
        if in_step or any(leads):
            of_steps.insert(before, calls[number])
        return in_step or any(leads)

    def _key(self, span: Span) -> _Key:
        return self._processes[_pid(span)][0], span.lifeline

    def _root_key(self, root: Node) -> _Key:
        """The script, or where the recording has no script over these calls, the process."""
        span = next(node.span for node in walk([root]) if node.kind == "call")
        if script_of(span):
            return self._key(span)
        return self._key(span)[0], self._processes[_pid(span)][1]

    def _boxes(self) -> tuple[Box, ...]:
        if len(self._processes) < 2:
            return ()
        return tuple(
            Box(shorten(visible(label), LONGEST_NAME), tuple(id for (of, _), id in self._ids.items() if of == number))
            for number, label in self._processes.values()
        )

    def _root(self, root: Node) -> list[Item]:
        start = self._root_key(root)
        if root.kind != "call" or not script_of(root.span):
            return self._node(root, start, 1)
        items = self._phase_note(root) + self._below(root, start)
        if root.failed:
            said = shorten(error(root.span, LONGEST_NOTE), LONGEST_NOTE)
            items.append(Note(self._ids[start], self._ids[start], said))
        return items

    def _below(self, node: Node, caller: _Key) -> list[Item]:
        return [item for child in node.children for item in self._node(child, caller, node.count)]

    def _node(self, node: Node, caller: _Key, of: int) -> list[Item]:
        """What is drawn for a node that was called, or stands, below one that ran `of` times."""
        if node.kind == "call":
            return self._call(node, caller, of)
        if node.kind == "line":
            return self._repeated(self._below(node, caller), node, of)
        if node.kind == "repeat":
            return self._repeated(self._below(node, caller), node, of)
        title = steps_title(node.steps, self._lang)
        below = self._below(node, caller)
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

    def _call(self, node: Node, caller: _Key, of: int) -> list[Item]:
        heading = self._phase_note(node)
        callee = self._key(node.span)
        source, target = self._ids[caller], self._ids[callee]
        below = self._below(node, callee)
        title = f"{shorten(visible(node.span.method), LONGEST_NAME)}({arguments(node.span, LONGEST_VALUES)})"
        # Repeated calls with arrows below them stand in a loop; without, a count says as much in one line.
        if often := "" if below and node.count % of == 0 else times(node.count, of, self._lang):
            title = f"{title} {often}"
        spans = tuple(span.span_id for span in node.spans)
        drawn_return = id(node) in self._returns
        opens = bool(below) or drawn_return
        items: list[Item] = [Message(source, target, title, opens=opens, spans=spans), *below]
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

    def _phase_note(self, node: Node) -> list[Item]:
        """A heading over all lifelines where another phase begins."""
        phase = node.span.attributes.get(names.PHASE)
        if phase not in ("startup", "generation") or phase == self._phase:
            return []
        self._phase = phase
        ids = list(self._ids.values())
        return [Note(ids[0], ids[-1], text(self._lang, f"diagram.{phase}"), phase=True)]


def _pid(span: Span) -> int:
    return span.process.pid if span.process else 0


def _processes(roots: Iterable[Node]) -> dict[int, tuple[int, str]]:
    """The number and the name of each process that made calls, by process id, in order of the first call."""
    found: dict[int, Process | None] = {}
    for node in walk(roots):
        if node.kind == "call":
            found.setdefault(_pid(node.span), node.span.process)
    return {pid: (number, process.name if process else "?") for number, (pid, process) in enumerate(found.items())}
