"""Records become spans: names, ids, times, attributes, and the facts that one call gives to another.

Calls are built in the order they ended, so a call's children come before it; what a child gives to a call around it
waits here until that call ends. Spans of calls and requests that never ended are made last, and marked as such.

Most calls have nothing but arguments and a result: encoder.py writes the text of their spans without making them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Any

from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.call_context import DEPTH_LIMITED, RECORDING, SUBMITTED, USER_SPAN, USER_UPDATE, Record
from tracellm.probes.context.exceptions import ErrorSummary, stack_trace
from tracellm.probes.record.call_ids import CallIds
from tracellm.probes.record.record_file import Header
from tracellm.probes.spans.pending_updates import PendingUpdates
from tracellm.probes.spans.span_site import SpanPlace, SpanSite
from tracellm.probes.spans.user_span import span_from
from tracellm.probes.wrapping.probe import Entry, Mistake
from tracellm.trace import names
from tracellm.trace.model import Event, Span

__all__ = ["SpanBuilder"]

Given = tuple[tuple[str, ...], dict[str, Any]]
"""Facts for a call around, and the names of the functions one of which that must be."""

_LONGEST_TEXT = 16_384
_NOWHERE = SpanPlace()


class SpanBuilder:
    """Makes the spans of one process, whose record file has this header. `entries` are the catalog's by their targets.

    Without the header's `text` what names.PRIVATE lists is left out, and the messages of exceptions, and texts in
    attributes of the user's own.

    Attributes:
        header: the file's.
        ids: ids of the process's calls.
        sites, places: those that were defined, by their numbers.
        tracker: what is known across calls.
        given: what calls that have ended gave to those around them, by the number of the next one around.
        recording_ns: time that the recording took within calls that have not ended, by their numbers.
        open: calls that last, by their numbers, as an OPEN frame has them.
        updates: what the program set on spans of calls that have not ended.
        problems: mistakes of the catalog's functions.
        calls, capture_ns: how many calls have ended, and how long their captures took.
    """

    def __init__(self, header: Header, entries: Mapping[str, Entry]) -> None:
        self.header = header
        self.sites: dict[int, SpanSite] = {}
        self.places: dict[int, SpanPlace] = {}
        self.given: dict[int, list[Given]] = {}
        self.recording_ns: dict[int, int] = {}
        self.open: dict[int, Sequence[Any]] = {}
        self.updates = PendingUpdates()
        self.problems: list[Mistake] = []
        self.calls = self.capture_ns = 0
        self.first, self.offset = header.origins[-1]
        self.shift_ns = header.clock[0] - header.clock[1]
        self.tracker = RequestTracker(_DerivedIds(header), header.text)
        self.tracker.untold = frozenset(header.untold)
        self.tracker.steps = header.steps
        self.ids = CallIds(header)
        self._entries = entries

    def define(self, sites: Iterable[tuple[int, Mapping[str, Any]]], places: Iterable[Any]) -> None:
        """Take over the definitions of a frame."""
        for number, definition in sites:
            self.sites[number] = SpanSite.of(definition, self._entries, self.problems)
        for number, definition in places:
            self.places[number] = SpanPlace.of(definition, self.header.root)

    def build(self, record: Record | Sequence[Any]) -> Iterator[Span]:
        """The call's span, and those of requests that ended with it. Facts are decoded, and may have lists for tuples.

        Raises:
            Exception: the record is not what its site has.
        """
        number, call, parent, place_number, start, end, facts, error = record
        if number < 0:
            yield from self._build_other(number, call, parent, start, end, facts)
            return
        site, place = self.sites[number], self.places.get(place_number, _NOWHERE)
        self.calls += 1
        self.open.pop(call, None)
        if site.timed and facts is not None:
            capture_ns, facts = facts
            self.capture_ns += capture_ns
            self._add_recording_time(parent, capture_ns)
        span = self._span(call, site, parent, place, start, end)
        given = self.given.pop(call, ())
        if facts is not None:
            self._describe(site, facts, span.attributes)
        if (recording_ns := self.recording_ns.pop(call, 0)) > 0:
            span.attributes[names.RECORDING_DURATION] = recording_ns
        if call in self.updates.of:
            self.updates.add_to(span, call, self.wall, self.header.text)
        if error is not None:
            self._fail(span, error)
        mine = self.pass_on(site, parent, given) if given else {}
        if facts is not None and site.gives is not None:
            self._give(site, parent, facts)
        if site.observe is not None:
            try:
                site.observe(self.tracker, span, facts, mine)
            except Exception as mistake:
                site.disable("observe", mistake)
        yield self._publish(span)
        yield from map(self._publish, self.tracker.take_ended())

    def give_facts(self, number: int, parent: int, facts: Any) -> None:
        """Give a call's facts to the one around it, without a span of the call itself."""
        site = self.sites[number]
        if facts is not None and site.timed:
            facts = facts[1]
        if facts is not None and site.gives is not None:
            self._give(site, parent, facts)

    def note_open(self, calls: Iterable[Sequence[Any]]) -> None:
        """Note calls that last, of an OPEN frame."""
        for one in calls:
            self.open[one[0]] = one

    def close(self, ended: int | None) -> Iterator[Span]:
        """The spans of calls that never ended, and of requests: those ended with the recording, if that did."""
        if ended is not None:
            self.tracker.close(self.wall(ended))
            yield from map(self._publish, self.tracker.take_ended())
        for call, number, parent, place, start, facts in self.open.values():
            if number == USER_SPAN:
                span = span_from(facts, self.wall)
            else:
                span = self._span(call, self.sites[number], parent, self.places.get(place, _NOWHERE), start, start)
            span.attributes[names.OPEN] = True
            yield self._publish(span)
        for life in self.tracker.unfinished():
            yield self._publish(life)

    # -- parts of a span -----------------------------------------------------------------------------------------------

    def wall(self, monotonic_ns: int) -> int:
        """The wall-clock time of a reading of the recording's clock, in nanoseconds since 1970."""
        return monotonic_ns + self.shift_ns

    def alike(self, site: SpanSite, thread_name: str | None) -> dict[str, Any]:
        """Attributes that the spans of all calls of this site, in this thread, have."""
        return site.alike if thread_name is None else {**site.alike, names.THREAD_NAME: thread_name}

    def public(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The attributes that are to be recorded."""
        if self.header.text:
            return attributes
        return {name: value for name, value in attributes.items() if name not in names.PRIVATE}

    def own_attributes(self, site: SpanSite, facts: Any, alike: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The attributes that a call's facts add to those that are `alike`; None where they would change these."""
        own: dict[str, Any] = {}
        if facts is not None:
            self._describe(site, facts, own)
        return self.public(own) if own.keys().isdisjoint(alike) else None

    def pass_on(self, site: SpanSite, parent: int, given: Iterable[Given]) -> dict[str, Any]:
        """What of this was given to a call of this site; the rest goes to the one around it."""
        mine: dict[str, Any] = {}
        for target, facts in given:
            if site.defined in target:
                mine.update(facts)
            elif parent >= self.first:  # else it is another process's, and would never end here
                self.given.setdefault(parent, []).append((target, facts))
        return mine

    def _build_other(self, kind: int, call: int, parent: int, start: int, end: int, facts: Any) -> Iterator[Span]:
        if kind == SUBMITTED:
            request_id, trace_id, span_id, life_parent = facts
            self.tracker.submitted(
                request_id, trace_id, span_id, self.ids.span_id(call) if call else life_parent, self.wall(start)
            )
        elif kind == USER_SPAN:
            self.open.pop(call, None)
            yield self._publish(span_from(facts, self.wall))
        elif kind == USER_UPDATE:
            self.updates.keep(call or self.header.root, facts)
        elif kind == RECORDING:
            self._add_recording_time(parent, end - start)
        elif kind == DEPTH_LIMITED and self.tracker.deep_steps is None:
            self.tracker.deep_steps = self.tracker.steps
        yield from map(self._publish, self.tracker.take_ended())

    def _add_recording_time(self, parent: int, nanoseconds: int) -> None:
        if parent >= self.first:
            self.recording_ns[parent] = self.recording_ns.get(parent, 0) + nanoseconds

    def _span(self, call: int, site: SpanSite, parent: int, place: SpanPlace, start: int, end: int) -> Span:
        trace_id, parent_id = self.ids.parent_of(parent, place.trace_id, place.parent)
        attributes = {**self.alike(site, place.thread_name)}
        if parent < self.header.root and place.outside:
            attributes[names.OUTSIDE] = True
        return Span(
            name=site.name,
            trace_id=trace_id,
            span_id=self.ids.span_id(call),
            parent_span_id=self.header.outside if call == self.header.root else parent_id,
            start_ns=start + self.shift_ns,
            end_ns=end + self.shift_ns,
            attributes=attributes,
        )

    def _describe(self, site: SpanSite, facts: Any, attributes: dict[str, Any]) -> None:
        """Add what a call's facts are as attributes."""
        if site.attributes is not None:
            try:
                attributes.update(site.attributes(facts))
            except Exception as mistake:
                site.disable("attributes", mistake)
        users = facts[1] if site.facts == "user" else site.user_attributes
        for name, value in users.items():
            if self.header.text or isinstance(value, bool | int | float):
                attributes.setdefault(name, value)

    def _give(self, site: SpanSite, parent: int, facts: Any) -> None:
        assert site.gives is not None
        try:
            given = dict(site.gives(facts))
        except Exception as mistake:
            site.disable("gives", mistake)
            return
        if parent >= self.first:
            self.given.setdefault(parent, []).append((site.gives_to, given))

    def _fail(self, span: Span, error: ErrorSummary) -> None:
        text = self.header.text
        kind, message, _ = error
        span.attributes[names.ERROR_TYPE] = kind
        span.error = f"{kind}: {message}" if message and text else kind
        about = {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: message[:_LONGEST_TEXT]}
        if text:
            about[names.EXCEPTION_STACKTRACE] = stack_trace(error)[:_LONGEST_TEXT]
        span.events.append(Event("exception", span.end_ns, {**about}))

    def _publish(self, span: Span) -> Span:
        if not self.header.text:
            for attributes in (span.attributes, *(event.attributes for event in span.events)):
                for name in names.PRIVATE.intersection(attributes):
                    del attributes[name]
        return span


class _DerivedIds:
    """Ids for requests that were submitted before the recording began: made of the process's own, so always the
    same."""

    def __init__(self, header: Header) -> None:
        self._process = f"{header.trace_id} {header.origins[-1]}"
        self._count = count()

    def trace(self) -> str:
        """A trace id."""
        return self._next(16)

    def request_span(self) -> str:
        """A span id."""
        return self._next(8)

    def _next(self, size: int) -> str:
        return blake2b(f"{self._process} {next(self._count)}".encode(), digest_size=size).hexdigest()
