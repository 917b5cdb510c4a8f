"""The sequence diagram as data: the overview of the most important calls, and all calls down to kernels.

The page's script draws both, opens and closes their calls, and writes them as Mermaid. js/sequence/model.js describes
the fields. Both languages have the same calls; texts that differ are in the data twice.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from textwrap import wrap
from typing import Any

from tracellm.report.diagram.layout import LONGEST_VALUES
from tracellm.report.diagram.lifelines import LONGEST_NAME
from tracellm.report.diagram.mermaid import NOTE_WIDTH
from tracellm.report.diagram.model import Close, Diagram, Item, Loop, Message, Participant
from tracellm.report.diagram.sequence import sequence, whole_sequence
from tracellm.report.facts.engines import step_positions
from tracellm.report.facts.requests import as_list, requests
from tracellm.report.texts import LANGUAGES
from tracellm.report.wording.request_names import request_names
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import call_title, message_title, script_of
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.names import LEVELS
from tracellm.trace.ranges import format_ranges
from tracellm.trace.steps import STEP_SPAN, Step

__all__ = ["MOST_ARROWS", "diagrams_data", "sequence_data"]

MOST_ARROWS = 20_000
"""Arrows of the whole diagram; of a run with more, the most important are kept."""
MOST_RUNS = 40
"""Evenly spaced runs of span numbers that one arrow keeps."""


def sequence_data(trace: Trace) -> dict[str, Any]:
    """Return both diagrams of a run."""
    overview = [sequence(trace, lang=lang) for lang in LANGUAGES]
    return diagrams_data(trace, overview, [whole_sequence(trace, MOST_ARROWS, lang) for lang in LANGUAGES])


def diagrams_data(trace: Trace, overview: Sequence[Diagram], whole: Sequence[Diagram]) -> dict[str, Any]:
    """Return an overview and the whole diagram, each given in all languages."""
    writer = _Writer(trace)
    return {
        "overview": writer.diagram(overview),
        "whole": writer.diagram(whole),
        "lifelines": writer.lifelines,
        "texts": writer.texts(),
    }


class _Writer:
    """Writes diagrams with one table of lifelines and one of texts."""

    def __init__(self, trace: Trace) -> None:
        self.lifelines: list[dict[str, Any]] = []
        self._trace = trace
        self._numbers = {span.span_id: number for number, span in enumerate(trace.spans)}
        self._steps = step_positions(trace)
        self._owners = _Owners(trace)
        self._messages = {message.send.span_id: message for message in trace.messages}
        self._texts: dict[tuple[str, ...], int] = {}
        self._by_participant: dict[tuple[int, str, str, int], int] = {}
        self._ids: set[str] = set()
        self._by_id: dict[str, int] = {}
        """Lifelines of the diagram that is being written."""
        self._groups: list[_StepGroup] = []
        """Its groups of steps."""
        self._hidden: dict[int, tuple[str, ...]] = {}
        """Calls inside its arrows that have none of their own, by the arrow's first span."""

    def texts(self) -> dict[str, list[str]]:
        """Return the texts of each language."""
        return {lang: [own[i] for own in self._texts] for i, lang in enumerate(LANGUAGES)}

    def diagram(self, diagrams: Sequence[Diagram]) -> dict[str, Any]:
        """Return a diagram, given in each language."""
        alike = Counter[tuple[int, str, str]]()  # names are shortened, and two may have become one
        lines = []
        for own in zip(*(one.participants for one in diagrams), strict=True):
            name = own[0].process, own[0].label, own[0].below
            alike[name] += 1
            lines.append(self._lifeline(own, (*name, alike[name])))
        self._by_id = {}
        for one in diagrams:  # an id may differ by language
            self._by_id |= {participant.id: line for participant, line in zip(one.participants, lines, strict=True)}
        boxes = {}
        for box in zip(*(one.boxes for one in diagrams), strict=True):
            process = self.lifelines[self._by_id[box[0].participants[0]]]["process"]
            boxes[process] = self._text(*(one.label for one in box))
        self._groups, self._hidden = [], {}
        items = self._items(list(zip(*(one.items for one in diagrams), strict=True)))
        self._say_what_is_alike(items)
        return {
            "lifelines": lines,
            "boxes": boxes,
            "remark": self._text(*(one.remark for one in diagrams)),
            "left": diagrams[0].left_out,
            "items": items,
        }

    def _say_what_is_alike(self, items: list[dict[str, Any]]) -> None:
        """Give each group of steps that does not draw all of its steps' calls the calls that stand for them."""
        outputs: dict[str, list[dict[str, Any]]] = {name: [] for name in sorted(_OUTPUTS, reverse=True)}
        for call in _calls(items):
            if "n" in call and (name := self._name(call)) in outputs:
                outputs[name].append(call)
        candidates: list[tuple[_StepGroup, set[str]]] = []
        for group in self._groups:
            own = list(_calls(group.node["items"]))
            drawn = {self._name(call) for call in own}
            made = drawn | {self._trace.by_id[id].name for call in own for id in self._hidden.get(call["n"][0], ())}
            calls = list(_outermost(group.node["items"]))
            if len(own) > 1:
                candidates.append((group, drawn))
            elif made > drawn:
                alike = [(one, names) for one, names in candidates if one.is_decode == group.is_decode] or candidates
                if alike:
                    nearest, _ = max(alike, key=lambda one: (_likeness(made, one[1]), -group.difference(one[0])))
                    calls = [call for call in _outermost(nearest.node["items"]) if self._name(call) in made | _OUTPUTS]
            inside = {self._name(call) for call in _calls(calls)}
            if group.serves:
                first = calls[0]["n"][0] if calls else 0
                for name, found in outputs.items():
                    if name not in inside:
                        earlier = [call for call in found if call["n"][0] <= first]
                        calls += earlier[-1:] or found[:1]
            if [id(call) for call in calls] != [id(call) for call in _outermost(group.node["items"])]:
                group.node["k"] = [call["n"][0] for call in calls]

    def _name(self, call: dict[str, Any]) -> str:
        span = self._trace.spans[call["n"][0]]
        return str(span.attributes.get(names.MESSAGE_TYPE, span.name)) if "m" in call else span.name

    def _text(self, *own: str) -> int:
        """Return the number of a text, given in each language."""
        return self._text_number(*map(visible, own))

    def _lines(self, *own: str) -> int:
        """Return the number of a text that is written in short lines."""
        return self._text_number(*("\n".join(wrap(visible(one), NOTE_WIDTH)) for one in own))

    def _text_number(self, *own: str) -> int:
        return self._texts.setdefault(own, len(self._texts))

    def _lifeline(self, own: Sequence[Participant], key: tuple[int, str, str, int]) -> int:
        """Return the number of a lifeline, the same in both diagrams."""
        if key not in self._by_participant:
            ids = [one.id for one in own]
            if not self._ids.isdisjoint(ids):
                ids = [f"L{len(self.lifelines) + 1}"] * len(own)
            self._ids |= set(ids)
            self._by_participant[key] = len(self.lifelines)
            self.lifelines.append(
                {
                    "id": self._text(*ids),
                    "label": self._text(*(one.label for one in own)),
                    "below": self._text(*(one.below for one in own)),
                    "process": own[0].process,
                }
            )
        return self._by_participant[key]

    def _items(self, items: Sequence[tuple[Item, ...]]) -> list[dict[str, Any]]:
        """Return a tree of the items: calls, loops, steps and phases, each with what happened within."""
        found: list[dict[str, Any]] = []
        current = found
        around: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []  # open calls, and the lists that hold them
        index = 0
        while index < len(items):
            own: tuple[Any, ...] = items[index]
            item: Item = own[0]
            index += 1
            if isinstance(item, Close) or (isinstance(item, Message) and item.closes):
                current, call = around.pop()
                call["items"] = _in_phases(call["items"])
                if isinstance(item, Message):
                    call["back"] = self._text(*(one.text for one in own))
                    call |= {"x": 1} if item.kind == "error" else {}
            elif isinstance(item, Message):
                call = self._call(own)
                current.append(call)
                if item.opens:
                    around.append((current, call))
                    current = call.setdefault("items", [])
            elif isinstance(item, Loop):
                loop = self._group("loop", self._text(*(one.text for one in own)), item.steps)
                loop["items"] = self._items(list(zip(*(one.items for one in own), strict=True)))
                current.append(loop)
            elif item.phase:
                current.append(self._group("phase", self._text(*(one.text for one in own)), ()) | {"items": []})
            else:
                note = self._group("note", self._lines(*(one.text for one in own)), item.steps)
                note |= {"a": self._by_id[item.first], "b": self._by_id[item.last]}
                if item.length:
                    note |= {"g": "step", "items": self._items(items[index : index + item.length])}
                    index += item.length
                current.append(note)
        return _in_phases(found)

    def _call(self, own: Sequence[Message]) -> dict[str, Any]:
        message = own[0]
        if message.spans:
            self._hidden[self._numbers[message.spans[0]]] = message.inside
        spans = [self._trace.by_id[id] for id in message.spans]
        call: dict[str, Any] = {
            "a": self._by_id[message.source],
            "b": self._by_id[message.target],
            "t": self._text(*(one.text for one in own)),
        }
        if spans:
            # Every zoom draws messages, whatever the level of the call that sends them.
            level = 0 if message.kind == "message" else LEVELS.index(spans[0].level)
            call |= {"n": _runs([self._numbers[id] for id in message.spans]), "l": level}
        optional: dict[str, Any] = {
            "c": len(spans) if len(spans) > 1 else 0,
            "h": len(message.inside),
            "m": int(message.kind == "message"),
            "x": int(any(span.error for span in spans)),
            "e": self._text(*(one.single for one in own)) if message.single else 0,
        }
        by_row: dict[int, list[Span]] = {}
        for span in spans:
            for row in self._owners.of(span):
                by_row.setdefault(row, []).append(span)
        rows = sorted(by_row)
        if rows:
            optional["r"] = rows
        if len(rows) > 1 and len(spans) > 1:
            optional["o"] = [self._of_one(by_row[row]) for row in rows]
        return call | {key: value for key, value in optional.items() if value}

    def _of_one(self, spans: Sequence[Span]) -> list[int]:
        """Return the text of the calls of one request that are drawn with those of others, and their numbers."""
        span = spans[0]
        sent = self._messages.get(span.span_id)
        title = call_title(span, LONGEST_NAME, LONGEST_VALUES)
        own = [message_title([(sent, None)], request_names(self._trace), lang) if sent else title for lang in LANGUAGES]
        return [self._text(*own), *_runs([self._numbers[one.span_id] for one in spans])]

    def _group(self, kind: str, text: int, steps: Sequence[Step]) -> dict[str, Any]:
        known = [self._steps[step.span.span_id] for step in steps if step.span.span_id in self._steps]
        own = groupby(sorted(known), key=itemgetter(0))
        drawn = [[engine, format_ranges([index for _, index in indexes])] for engine, indexes in own]
        node: dict[str, Any] = {"g": kind, "t": text}
        if drawn:
            node["s"] = drawn
            self._groups.append(_StepGroup(node, steps))
        return node


def _in_phases(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items, with those that follow the heading of a phase within it."""
    found: list[dict[str, Any]] = []
    current = found
    for item in items:
        if item.get("g") == "phase":
            found.append(item)
            current = item["items"]
        else:
            current.append(item)
    return found


def _runs(numbers: Sequence[int]) -> list[int]:
    """Return ascending numbers as the first one, and pairs of a distance and how often it follows."""
    found = list(numbers[:1])
    for distance, repeated in groupby(after - before for before, after in pairwise(numbers)):
        if len(found) > 2 * MOST_RUNS:
            break
        found += [distance, len(list(repeated))]
    return found


_OUTPUTS = frozenset({"OUTPUTS", "OutputProcessor.process_outputs"})
"""Outputs on their way to the client: calls that follow a step, and may be drawn after the next step has begun."""


@dataclass(frozen=True, slots=True)
class _StepGroup:
    """A group of steps of a diagram, and the steps."""

    node: dict[str, Any]
    steps: Sequence[Step]

    @property
    def is_decode(self) -> bool:
        return self.steps[0].kind == "decode"

    @property
    def serves(self) -> bool:
        """Return whether a step scheduled a request."""
        return any(step.requests for step in self.steps)

    def difference(self, other: "_StepGroup") -> int:
        """Return the difference in requests."""
        return abs(len(self.steps[0].requests) - len(other.steps[0].requests))


def _likeness(made: set[str], drawn: set[str]) -> float:
    """Return how many calls two steps have in common, relative to all of their calls."""
    return len(made & drawn) / len(made | drawn)


def _calls(items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield all calls of a tree, from top to bottom."""
    for item in items:
        if "g" not in item:
            yield item
        yield from _calls(item.get("items", ()))


def _outermost(items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the calls that no other call of the tree made."""
    for item in items:
        if "g" in item:
            yield from _outermost(item.get("items", ()))
        else:
            yield item


class _Owners:
    """The requests that calls are part of, as rows of the page's list of requests.

    A call belongs to a request if it or a call around it names the request. The calls around the request's span belong
    to it, and so do those of a trace that an HTTP request began. What a thread or task does for all requests, such as
    `AsyncLLM.output_handler`, belongs to none, even if a request started it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._by_id: dict[str, list[tuple[int, int]]] = {}
        self._by_caller: dict[str, int] = {}
        self._around: dict[str, list[int]] = {}
        self._by_trace: dict[str, list[int]] = {}
        self._known: dict[str, tuple[int, ...] | None] = {}
        for row, request in enumerate(requests(trace.spans)):
            span = trace.by_id[request.span_id]
            self._by_id.setdefault(request.id, []).append((span.start_ns, row))
            self._by_trace.setdefault(span.trace_id, []).append(row)
            if span.parent_span_id:
                self._by_caller[span.parent_span_id] = row
            above = trace.parent(span)
            while above is not None and row not in self._around.get(above.span_id, [])[-1:]:
                self._around.setdefault(above.span_id, []).append(row)
                above = trace.parent(above)
        for span in trace.spans:
            if span.name == STEP_SPAN or script_of(span):
                self._by_trace.pop(span.trace_id, None)

    def of(self, span: Span) -> Sequence[int]:
        """Return the rows of the requests that a call is part of."""
        path: list[Span] = []
        above: Span | None = span
        rows: tuple[int, ...] | None = None
        while above is not None:
            if above.span_id in self._known:
                rows = self._known[above.span_id]
                break
            path.append(above)
            named = self._named(above)
            if named is not None:
                rows = (named,)
                break
            if above.attributes.get(names.CALL_KIND) == "loop":
                rows = ()
                break
            above = self._trace.parent(above)
        self._known.update(dict.fromkeys([one.span_id for one in path], rows))
        if rows is None:
            rows = tuple(self._by_trace.get(span.trace_id, ()))
        return rows or self._around.get(span.span_id, ())

    def _named(self, span: Span) -> int | None:
        """Return the row of the request that a call submits, or has as an argument or in a message."""
        if span.span_id in self._by_caller:
            return self._by_caller[span.span_id]
        own = self._by_id.get(_request_id(span))
        if not own:
            return None
        # an id may be used again: the last request submitted before the call ended
        return own[max(bisect_right(own, span.end_ns, key=itemgetter(0)) - 1, 0)][1]


def _request_id(span: Span) -> str:
    """Return the id of the one request that a call is about, or an empty string."""
    attributes = span.attributes
    if names.REQUEST_ID in attributes:
        return str(attributes[names.REQUEST_ID])
    if attributes.get(names.MESSAGE_TYPE) in ("ADD", "ABORT"):
        return str(attributes.get(names.MESSAGE_ID)).partition(" ")[2]
    passed = (str(one).partition("=") for one in as_list(attributes.get(names.ARGUMENTS)))
    return next((value for name, _, value in passed if name == "request_id"), "")
