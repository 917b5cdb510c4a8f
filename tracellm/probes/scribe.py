"""Records become text at once: for most calls there is no span, only what its line in the file would say.

Nine of ten calls of a run are of layers, kernels and the scheduler's small functions. They have nothing to tell but
arguments and a result in short, and these are the same again and again. So what is alike in all calls of a function is
made once (a `_Plan`), what is alike in all calls with the same facts is remembered there, and a call's text is put
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
        told: the text of what facts tell besides, where they came before; None: each call goes the long way.
        in_words: that text, for any facts; None: it is made of attributes.
    """

    __slots__ = ("alike", "attributes", "in_words", "name", "told")

    def __init__(self, alike: dict[str, Any], form: Form, in_words: InWords | None) -> None:
        self.alike = alike
        self.name, self.attributes = form
        self.told: dict[Any, str] | None = {}
        self.in_words = in_words


_LONG_WAY = _Plan({}, Form("", ""), None)
_LONG_WAY.told = None

Plans = dict[tuple[Probe, type | None], _Plan]


class Scribe:
    """Writes the records of one process; `tell` is given a problem, for people."""

    def __init__(self, builder: Builder, listeners: Listeners, tell: Callable[[str], None]) -> None:
        self._builder = builder
        self._listeners = listeners
        self._tell = tell
        self._plans: dict[str | None, Plans] = {}  # by the thread's name
        self._outer: dict[tuple[str, str | None], tuple[str, str]] = {}
        self._remembered = 0

    def write(self, records: Iterable[Record | Note | Made | Told], written: Written) -> list[Span]:
        """Add the texts of what these records tell to what is `written`; the spans that listeners may want to hear."""
        builder = self._builder
        (first, offset), root, shift = builder.origin, builder.root, builder.shift_ns
        given, users = builder.given, builder.told
        spans: list[Span] = []
        add_text, add_call, add_parent = written.texts.append, written.calls.append, written.parents.append
        before: Place | str | None = "none yet"
        short_way = 0
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
            plan = plans.get((probe, owner)) or self._plan(plans, probe, owner, place)
            told = plan.told
            of_other = parent < first and (parent >= root or call < first or is_outside)
            if told is None or error is not None or of_other or (users and call in users):
                spans += self._write_long(record, written)
                continue
            try:
                more: str | None = told[facts]
            except (KeyError, TypeError):
                if (more := self._more(plan, probe, facts)) is None:
                    spans += self._write_long(record, written)
                    continue
            if given and (gifts := given.pop(call, None)):
                builder.pass_on(probe, parent, gifts)
            above = f"{PARENT}{'%016x' % (parent + offset)}" if parent >= first else outermost
            add_text(
                f"{trace}{'%016x' % (call + offset)}{above}{plan.name}{start + shift}{ENDED}{end + shift}"
                f"{plan.attributes}{more}"
            )
            add_call(call)
            add_parent(parent)
            short_way += 1
        builder.calls += short_way
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
        tells_more = probe.timed or probe.observe is not None or probe.gives is not None
        if not tells_more and not self._listeners.want(name):
            in_words = _in_words(probe)
            with suppress(Exception):  # of which write_spans will tell
                plan = _Plan(alike, form(name, self._builder.public(alike)), in_words)
        if sum(map(len, self._plans.values())) >= _MOST_PLANS:
            for one in self._plans.values():
                one.clear()
        plans[probe, owner] = plan
        return plan

    def _more(self, plan: _Plan, probe: Probe, facts: Any) -> str | None:
        """The text of what these facts tell besides what is alike; None where it cannot be told in short."""
        if plan.told is None:
            return None
        if plan.in_words is not None and facts is not None:
            text = plan.in_words(facts) + LAST
        elif (more := self._builder.more(probe, facts, plan.alike)) is None:
            return None
        else:
            text = f",{attributes_text(more)}{LAST}" if more else LAST
        if self._remembered >= _MEMORY:
            self._forget()
        try:
            plan.told[facts] = text
            self._remembered += 1
        except TypeError:  # it has no hash
            pass
        return text

    def _forget(self) -> None:
        for plans in self._plans.values():
            for plan in plans.values():
                if plan.told is not None:
                    plan.told.clear()
        self._remembered = 0


def _in_words(probe: Probe) -> InWords | None:
    """How arguments and result become text, where nothing else is told of a call."""
    capture = probe.capture
    if not isinstance(capture, InShort) or capture.also is not None or probe.users_attributes is not None:
        return None
    return InWords(capture.names)
