"""Records become text at once: for most calls there is no span, only what its line in the file would say.

Nine of ten calls of a run are of layers, kernels and the scheduler's small functions. They have nothing to tell but
arguments and a result in short, and these are the same again and again. So what is alike in all calls of a function is
made once (a `_Plan`), what calls with the same facts say of them is remembered there, and a call's text is put
together of these, two ids and two times. Whatever is more than that goes the long way: build.py makes a span of it.

Both ways end in the same text; a test compares them.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tracellm.probes.brief import InShort
from tracellm.probes.build import Builder
from tracellm.probes.in_words import InWords
from tracellm.probes.listeners import Listeners
from tracellm.probes.spec import Probe
from tracellm.probes.state import Made, Note, Place, Record, Told
from tracellm.trace.model import Span
from tracellm.trace.otlp.encoding import ENDED, LAST, PARENT, SPAN, TRACE, Form, attributes_text, form, span_text

__all__ = ["Scribe", "Written"]

_MEMORY = 20_000  # facts, of half a kilobyte each
_MOST_PLANS = 10_000
_MOST_PLACES = 1_000
_MOST_IDS = 65_536


@dataclass(slots=True)
class Written:
    """Texts of spans, in the order they ended, and the number of the call that each is of, and of its parent.

    The number is 0 for what is no call of this process.
    """

    texts: list[str] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)


class _Plan:
    """How calls of one probe, on one class, in one thread are written.

    Attributes:
        name, attributes: of their Form.
        alike: these attributes as they are.
        latest, rest: the facts of the last call, and all that its text has after its times: calls are like the one
            before more often than not, and that is seen in half the time that it takes to look them up.
        in_words: the text of any facts; None: it is made of attributes.
        told: in that case, the text of those that came before.
        is_counted: each call has something for others as well (Builder.count).
    """

    __slots__ = ("alike", "attributes", "in_words", "is_counted", "latest", "name", "rest", "told")

    def __init__(
        self, alike: dict[str, Any], form: Form, in_words: InWords | None = None, is_counted: bool = False
    ) -> None:
        self.alike = alike
        self.name, self.attributes = form
        self.in_words = in_words
        self.is_counted = is_counted
        self.latest: Any = _NOTHING
        self.rest = ""
        self.told: dict[Any, str] = {}


class _Nothing:
    """What no facts are equal to, whatever these are."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


_NOTHING = _Nothing()
_LONG_WAY = _Plan({}, Form("", ""))

Plans = dict[Probe, dict[type | None, _Plan]]


class _Ids(dict[int, str]):
    """Span ids by the number of the call: each is wanted again for the calls within.

    Their texts are made many at a time, which is a fifth of the work: numbers that follow each other differ in the last
    two digits.
    """

    def __init__(self, offset: int) -> None:
        super().__init__()
        self._offset = offset

    def __missing__(self, call: int) -> str:
        if len(self) > _MOST_IDS:
            self.clear()
        span = call + self._offset
        begin, first = f"{span >> 8:014x}", call - (span & 0xFF)
        self.update(enumerate([begin + last for last in _LAST_DIGITS], first))
        return self[call]


_LAST_DIGITS = [f"{number:02x}" for number in range(256)]


class Scribe:
    """Writes the records of one process; `tell` is given a problem, for people."""

    def __init__(self, builder: Builder, listeners: Listeners, tell: Callable[[str], None]) -> None:
        self._builder = builder
        self._listeners = listeners
        self._tell = tell
        self._plans: dict[str | None, Plans] = {}  # by the thread's name
        self._outer: dict[tuple[str, str | None], tuple[str, str]] = {}
        self._remembered = self._planned = 0
        self._offset, self._ids = 0, _Ids(0)

    def write(self, records: Iterable[Record | Note | Made | Told], written: Written) -> list[Span]:
        """Add the texts of what these records tell to what is `written`; the spans that listeners may want to hear."""
        builder = self._builder
        (first, offset), root, shift = builder.origin, builder.root, builder.shift_ns
        if offset != self._offset:
            self._offset, self._ids = offset, _Ids(offset)
        ids, given, users = self._ids, builder.given, builder.notes.of
        texts, calls, parents = written.texts, written.calls, written.parents
        spans: list[Span] = []
        before: Place | str | None = "none yet"
        for record in records:
            try:  # what is no call has fewer fields, and is rare: Note, Made, Told
                probe, call, parent, place, owner, start, end, _, facts, error = record  # type: ignore[misc]
            except ValueError:
                spans += self._write_long(record, written)
                continue
            if place is not before:
                before = place
                plans, trace, outermost = self._where(place)
                is_outside = builder.is_outside(place)
            try:
                plan = plans[probe][owner]
            except KeyError:
                plan = self._plan(plans, probe, owner, place)
            of_other = parent < first and (parent >= root or call < first or is_outside)
            if plan is _LONG_WAY or error is not None or of_other or (users and call in users):
                rest = None
            else:
                rest = plan.rest if plan.latest == facts else self._rest(plan, record)  # type: ignore[arg-type]
            if rest is None:
                spans += self._write_long(record, written)
                continue
            if given and call in given:
                builder.pass_on(probe, parent, given.pop(call))
            above = f"{PARENT}{ids[parent]}" if parent >= first else outermost
            texts.append(f"{trace}{ids[call]}{above}{plan.name}{start + shift}{ENDED}{end + shift}{rest}")
            calls.append(call)
            parents.append(parent)
            builder.calls += 1
        return spans

    def write_spans(self, spans: Iterable[Span], written: Written) -> list[Span]:
        """Add the texts of these spans; those that could be written."""
        done = []
        for span in spans:
            try:
                text = span_text(span)
            except Exception as error:  # must not take the others with it
                self._tell(f"a call of {span.name} cannot be written: {type(error).__name__}")
                continue
            written.texts.append(text)
            written.calls.append(self._builder.call_of(span.span_id))
            written.parents.append(self._builder.call_of(span.parent_span_id))
            done.append(span)
        return done

    def _write_long(self, record: Record | Note | Made | Told, written: Written) -> list[Span]:
        try:
            return self.write_spans(self._builder.build(record), written)
        except Exception as error:
            self._tell(f"a call cannot be recorded: {type(error).__name__}: {error}")
            return []

    def _where(self, place: Place | None) -> tuple[Plans, str, str]:
        """How calls in this place are written: their plans, the trace, the parent of the outermost."""
        thread_name = None if place is None else place.thread_name
        plans = self._plans.setdefault(thread_name, {})
        ids = self._builder.place_of(0, place)
        if (known := self._outer.get(ids)) is None:
            trace_id, parent_id = ids
            known = f"{TRACE}{trace_id}{SPAN}", f"{PARENT}{parent_id}" if parent_id is not None else ""
            if len(self._outer) >= _MOST_PLACES:
                self._outer.clear()
            self._outer[ids] = known
        return plans, *known

    def _plan(self, plans: Plans, probe: Probe, owner: type | None, place: Place | None) -> _Plan:
        plan = _LONG_WAY
        name, alike = self._builder.alike(probe, owner, None if place is None else place.thread_name)
        tells_more = probe.timed and probe.gives is None and not probe.in_short
        if probe.observe is None and not self._listeners.want(name, tells_more):
            is_counted = probe.timed or probe.gives is not None
            in_words = None if is_counted else _in_words(probe)
            with suppress(Exception):  # of which write_spans will tell
                plan = _Plan(alike, form(name, self._builder.public(alike)), in_words, is_counted)
        if self._planned >= _MOST_PLANS:
            self._planned = 0
            for one in self._plans.values():
                one.clear()
        plans.setdefault(probe, {})[owner] = plan
        self._planned += 1
        return plan

    def _rest(self, plan: _Plan, record: Record) -> str | None:
        """What this call's text ends in; None where that cannot be told in short."""
        probe, facts = record[0], record[8]
        if plan.in_words is not None and facts is not None:
            plan.rest = f"{plan.attributes}{plan.in_words(facts)}{LAST}"
            plan.latest = facts
            return plan.rest
        try:
            rest: str | None = plan.told[facts]
        except (KeyError, TypeError):  # or it has no hash
            rest = self._learn(plan, probe, facts)
        if plan.is_counted and rest is not None:
            self._builder.count(record)
        return rest

    def _learn(self, plan: _Plan, probe: Probe, facts: Any) -> str | None:
        more = self._builder.more(probe, facts, plan.alike)
        if more is None:
            return None
        try:
            rest = f"{plan.attributes},{attributes_text(more)}{LAST}" if more else plan.attributes + LAST
        except Exception:  # of which write_spans will tell
            return None
        if self._remembered >= _MEMORY:
            self._forget()
        with suppress(TypeError):
            plan.told[facts] = rest
            self._remembered += 1
        return rest

    def _forget(self) -> None:
        for plans in self._plans.values():
            for of_probe in plans.values():
                for plan in of_probe.values():
                    plan.told.clear()
        self._remembered = 0


def _in_words(probe: Probe) -> InWords | None:
    """How arguments and result become text, where nothing else is told of a call."""
    capture = probe.capture
    if not isinstance(capture, InShort) or capture.also is not None or probe.users_attributes is not None:
        return None
    return InWords(capture.names)
