"""Spans of records: names, ids, times, attributes, and facts that one call passes to another.

The converter, the live feed and the tail feed it the records of one process in the order in which calls ended, so
children come before their caller. Facts for an enclosing call wait until that call ends. Calls and requests that never
ended become spans last, with tracellm.open.

Most calls have only arguments and a result: encoder.py makes their text without a span.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any, NamedTuple

from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.call_context import DEPTH_LIMITED, RECORDING, SUBMITTED, USER_SPAN, USER_UPDATE, Record
from tracellm.probes.context.exceptions import ErrorSummary, remember, stack_trace
from tracellm.probes.context.user_attributes import attributes_of, event_attributes
from tracellm.probes.record.record_file import CallIds, Header, RawRecord, facts_of
from tracellm.probes.wrapping.probe import Attributes, Entry, Gives, Mistake, Observe
from tracellm.probes.wrapping.summary import ArgumentAttributes, UserAttributes, VarArgsAttributes
from tracellm.trace import names
from tracellm.trace.model import Event, Link, Process, Span

__all__ = ["PendingUpdates", "SpanBuilder", "SpanSite", "SpanThread", "span_from"]

ForwardedFacts = tuple[tuple[str, ...], dict[str, Any]]
"""Names of the functions whose enclosing call gets the facts, and the facts."""

Update = Sequence[Any]
"""`(attributes, event, link)`, the latter None where there is none: a USER_UPDATE record's facts (call_context.py)."""

_LONGEST_TEXT = 16_384
_MOST_UPDATES = 50_000  # of half a kilobyte each
_MOST_UNDER_WAY = 65_536
_HTTP_CALLS = ("FastAPI.__call__",)
"""Calls that list the requests submitted within them (catalog/engine/http.py)."""


@dataclass(slots=True)
class SpanSite:
    """Common part of a site's spans, as its definition in the record file has it (record/recorder.py).

    Attributes:
        name: name of the spans.
        common: attributes of all spans.
        defined: name of the function, with the class that defines it.
        target: the catalog entry that its probe was made of, or "".
        facts: form of the facts: arguments, any, user, entry, or "".
        names: names of the parameters.
        timed: whether facts follow the nanoseconds that their capture took.
        attributes: makes attributes of facts, or None.
        user_attributes: attributes that a user set for every span.
        in_short: whether the catalog's attributes are only arguments and result.
        problems: mistakes of the catalog's functions.
    """

    name: str
    common: dict[str, Any]
    defined: str = ""
    target: str = ""
    facts: str = ""
    names: tuple[str, ...] = ()
    timed: bool = False
    attributes: Attributes | None = None
    user_attributes: Mapping[str, Any] = field(default_factory=dict)
    gives: Gives | None = None
    gives_to: tuple[str, ...] = ()
    observe: Observe | None = None
    in_short: bool = False
    problems: list[Mistake] = field(default_factory=list)

    @classmethod
    def of(cls, definition: Mapping[str, Any], entries: Mapping[str, Entry], problems: list[Mistake]) -> "SpanSite":
        """Return the site with this definition; `entries` are the catalog's by their targets."""
        entry = entries.get(definition.get("target", ""))
        facts = definition.get("facts", "")
        parameters, where = tuple(definition.get("names", ())), bool(definition.get("where"))
        made: dict[str, Attributes] = {
            "arguments": ArgumentAttributes(parameters, where),
            "any": VarArgsAttributes(parameters, where),
            "user": UserAttributes(),
        }
        site = cls(
            definition["name"],
            definition["attributes"],
            definition.get("defined", ""),
            definition.get("target", ""),
            facts,
            parameters,
            bool(definition.get("timed")),
            made.get(facts, None if entry is None else entry.attributes),
            user_attributes=definition.get("user_attributes", {}),
            in_short=bool(definition.get("in_short")),
            problems=problems,
        )
        if entry is not None and definition.get("gives"):
            site.gives = entry.gives
            site.gives_to = (entry.gives_to,) if isinstance(entry.gives_to, str) else entry.gives_to
        if entry is not None and definition.get("observes"):
            site.observe = entry.observe
        return site

    @property
    def is_plain(self) -> bool:
        """True if spans have only arguments and a result, on which nothing else depends."""
        return not self.timed and self.gives is None and self.observe is None and self.facts != "entry"

    def disable(self, part: str, error: Exception) -> None:
        """Stop using a part that failed, and note it once; spans are made without it."""
        setattr(self, part, None)
        where = self.common.get(names.CODE_FUNCTION, self.name)
        kind, message, _ = remember(error)
        self.problems.append(Mistake(f"the probe of {where} stopped: its {part} raised {kind}", message))


class SpanThread(NamedTuple):
    """A thread, and the trace that its calls belong to.

    Attributes:
        thread_name: None for the main thread.
        trace_id: None for the recording's own trace.
        parent: span id of the parent of outermost calls in that trace; None where they are roots.
        outside: whether the parent is outside the recording.
    """

    thread_name: str | None = None
    trace_id: str | None = None
    parent: str | None = None
    outside: bool = False

    @classmethod
    def of(cls, definition: Mapping[str, Any], root: int) -> "SpanThread":
        """Return the thread with this definition, in the recording whose script is the call `root`."""
        thread_name, trace = definition.get("thread_name"), definition.get("trace")
        if trace is None or trace[2] != root:
            return cls(thread_name)
        return cls(thread_name, trace[0], trace[1], bool(trace[3]))


MAIN_THREAD = SpanThread()
"""Thread of calls without a defined one."""


class PendingUpdates:
    """Attributes, events and links that users set on calls under way, through OpenTelemetry's current span.

    Only the last ones are kept, since updates to a call that has ended never reach a span.

    Attributes:
        of: updates by the number of the call.
        dropped: number of updates that were dropped.
    """

    def __init__(self) -> None:
        self.of: dict[int, deque[Update]] = {}
        self.dropped = 0
        self._count = 0

    def keep(self, call: int, update: Update) -> None:
        """Keep an update until the call ends."""
        self.of.setdefault(call, deque()).append(update)
        self._count += 1
        if self._count > _MOST_UPDATES:
            first, oldest = next(iter(self.of.items()))
            oldest.popleft()
            self._count -= 1
            self.dropped += 1
            if not oldest:
                del self.of[first]

    def forget(self, call: int) -> None:
        """Forget the updates of a call that has ended."""
        self._count -= len(self.of.pop(call, ()))


def span_from(data: Mapping[str, Any], shift_ns: int) -> Span:
    """Return a span that the program made with OpenTelemetry (otel/user_spans.py)."""
    return Span(
        data["name"],
        data["trace_id"],
        data["span_id"],
        data["parent_span_id"],
        data["start"] + shift_ns,
        data["end"] + shift_ns,
        attributes=dict(data["attributes"]),
        events=[Event(name, time + shift_ns, attributes) for name, time, attributes in data["events"]],
        links=[Link(*link) for link in data["links"]],
        error=data["error"],
    )


class SpanBuilder:
    """Makes the spans of one process, from the records of its record file.

    Without the header's `text`, spans lack the attributes in names.PRIVATE, messages of exceptions, and texts in users'
    attributes.

    Args:
        header: the record file's.
        entries: the catalog's entries by their targets.

    Attributes:
        process: the process, which all spans get.
        ids: ids of the process's calls.
        shift_ns: wall-clock time less the time of the recording's clock.
        sites, threads: definitions by their numbers.
        tracker: state across calls.
        forwarded: facts for calls that have not ended, by the number of the next enclosing call.
        recording_ns: time that the recording took within calls that have not ended, by their numbers.
        open: calls under way, by their numbers, as in an OPEN frame.
        updates: users' additions to the spans of calls that have not ended.
        problems: mistakes of the catalog's functions.
        calls, capture_ns: number of calls that have ended, and how long their captures took.
    """

    def __init__(self, header: Header, entries: Mapping[str, Entry]) -> None:
        self.header = header
        attributes = header.process
        self.process = Process(attributes[names.PROCESS_PID], attributes[names.PROCESS_NAME], attributes)
        self.sites: dict[int, SpanSite] = {}
        self.threads: dict[int, SpanThread] = {}
        self.forwarded: dict[int, list[ForwardedFacts]] = {}
        self.recording_ns: dict[int, int] = {}
        self.open: dict[int, Sequence[Any]] = {}
        self.updates = PendingUpdates()
        self.problems: list[Mistake] = []
        self._submitted: dict[int, list[str]] = {}  # requests of HTTP requests under way, by their threads' numbers
        self.calls = self.capture_ns = 0
        self.first, self.offset = header.origins[-1]
        self.shift_ns = header.clock[0] - header.clock[1]
        self.tracker = RequestTracker(_DerivedIds(header), header.text)
        self.tracker.left_out = frozenset(header.left_out)
        self.tracker.steps = header.steps
        self.ids = CallIds(header)
        self._entries = entries

    def define(self, sites: Iterable[tuple[int, Mapping[str, Any]]], threads: Iterable[Any]) -> None:
        """Add the definitions of a frame."""
        for number, definition in sites:
            self.sites[number] = SpanSite.of(definition, self._entries, self.problems)
        for number, definition in threads:
            self.threads[number] = SpanThread.of(definition, self.header.root)

    def build(self, record: Record | Sequence[Any]) -> Iterator[Span]:
        """Yield the call's span, and those of requests that ended with it; facts are decoded.

        Raises:
            Exception: the record does not match its site.
        """
        number, call, parent, thread_number, start, end, facts, error = record
        if number < 0:
            yield from self._build_other(number, call, parent, thread_number, start, end, facts)
            return
        site, thread = self.sites[number], self.threads.get(thread_number, MAIN_THREAD)
        recording_ns, updates = self.recording_ns.get(call, 0), self.updates.of.get(call)
        facts, received = self.follow(number, call, parent, facts)
        if thread_number in self._submitted and site.defined in _HTTP_CALLS:
            received = dict.fromkeys(self._submitted.pop(thread_number)) | received
        span = self._span(call, site, parent, thread, start, end)
        if facts is not None:
            self._describe(site, facts, span.attributes)
        if recording_ns > 0:
            span.attributes[names.RECORDING_DURATION] = recording_ns
        if updates:
            self._update(span, updates)
        if error is not None:
            self._fail(span, error)
        if site.observe is not None:
            try:
                site.observe(self.tracker, span, facts, received)
            except Exception as mistake:
                site.disable("observe", mistake)
        yield self._publish(span)
        yield from map(self._publish, self.tracker.take_ended())

    def follow(self, number: int, call: int, parent: int, facts: Any) -> tuple[Any, dict[str, Any]]:
        """Update the state across calls; a site without `observe` needs nothing else.

        Return its facts without their capture's time, and the facts that other calls forwarded to it.
        """
        site = self.sites[number]
        self.calls += 1
        self.open.pop(call, None)
        self.recording_ns.pop(call, None)
        if self.updates.of:
            self.updates.forget(call)
        if site.timed and facts is not None:
            capture_ns, facts = facts
            self.capture_ns += capture_ns
            self._add_recording_time(parent, capture_ns)
        forwarded = self.forwarded.pop(call, ())
        received = self._receive(site, parent, forwarded) if forwarded else {}
        if facts is not None and site.gives is not None:
            self._give(site, parent, facts)
        return facts, received

    def note_open(self, calls: Iterable[Sequence[Any]]) -> None:
        """Note the calls of an OPEN frame."""
        for call in calls:
            self.open[call[0]] = call

    def skip(self, steps: int, kept: Iterable[RawRecord] = ()) -> None:
        """Continue after records that a ring has dropped, and after `steps` steps.

        `kept` are submissions among those records, for requests that later records name.
        """
        self.open.clear()
        self.tracker.skip(steps)
        calls, capture_ns = self.calls, self.capture_ns
        for *begin, facts, error in kept:
            with suppress(Exception):  # damaged facts
                deque(self.build((*begin, facts_of(facts), error)), 0)
        self.calls, self.capture_ns = calls, capture_ns
        self.tracker.set_kept()

    def close(self, ended: int | None) -> Iterator[Span]:
        """Yield the spans of calls and requests that never ended; `ended` is the recording's end, None if it has none.

        Requests end with the recording.
        """
        if ended is not None:
            self.tracker.close(ended + self.shift_ns)
            yield from map(self._publish, self.tracker.take_ended())
        for call, number, parent, thread, start, facts in self.open.values():
            if number == USER_SPAN:
                span = span_from(facts, self.shift_ns)
            else:
                span = self._span(call, self.sites[number], parent, self.threads.get(thread, MAIN_THREAD), start, start)
            span.attributes[names.OPEN] = True
            yield self._publish(span)
        for request in self.tracker.unfinished():
            yield self._publish(request)

    # -- parts of a span -----------------------------------------------------------------------------------------------

    def common(self, site: SpanSite, thread_name: str | None) -> dict[str, Any]:
        """Return the attributes that all spans of a site have in a thread."""
        return site.common if thread_name is None else {**site.common, names.THREAD_NAME: thread_name}

    def public(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes that may be recorded."""
        if self.header.text:
            return attributes
        return {name: value for name, value in attributes.items() if name not in names.PRIVATE}

    def own_attributes(self, site: SpanSite, facts: Any, common: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the attributes that facts add to the common ones (`common`); None if they would change these."""
        own: dict[str, Any] = {}
        if facts is not None:
            self._describe(site, facts, own)
        return self.public(own) if own.keys().isdisjoint(common) else None

    def _build_other(
        self, kind: int, call: int, parent: int, thread_number: int, start: int, end: int, facts: Any
    ) -> Iterator[Span]:
        if kind == SUBMITTED:
            request_id, trace_id, span_id, request_parent = facts
            if call:
                request_parent = self.ids.span_id(call)
                if thread_number and call >= self.first:
                    self.forwarded.setdefault(call, []).append((_HTTP_CALLS, {request_id: None}))
            if thread_number:  # within an HTTP request; a stream ends after the calls that could forward it
                self._submitted.setdefault(thread_number, []).append(request_id)
                if len(self._submitted) > _MOST_UNDER_WAY:  # some were submitted after the end of their HTTP request
                    del self._submitted[next(iter(self._submitted))]
            self.tracker.submitted(request_id, trace_id, span_id, request_parent, start + self.shift_ns)
        elif kind == USER_SPAN:
            self.open.pop(call, None)
            yield self._publish(span_from(facts, self.shift_ns))
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

    def _span(self, call: int, site: SpanSite, parent: int, thread: SpanThread, start: int, end: int) -> Span:
        trace_id, parent_id = self.ids.parent_of(parent, thread.trace_id, thread.parent)
        attributes = {**self.common(site, thread.thread_name)}
        if parent < self.header.root and thread.outside:
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
        """Add the attributes that a call's facts become."""
        if site.attributes is not None:
            try:
                attributes.update(site.attributes(facts))
            except Exception as mistake:
                site.disable("attributes", mistake)
        users = facts[1] if site.facts == "user" else site.user_attributes
        for name, value in users.items():
            if self.header.text or isinstance(value, bool | int | float):
                attributes.setdefault(name, value)

    def _update(self, span: Span, updates: Iterable[Update]) -> None:
        """Add users' updates to a span; they replace none of the recording's own attributes."""
        text = self.header.text
        own = dict(span.attributes)
        for attributes, event, link in updates:
            span.attributes.update(attributes_of(attributes, text))
            if event is not None:
                name, attributes, time, is_wall = event
                time_ns = time if is_wall else time + self.shift_ns
                span.events.append(Event(name, time_ns, event_attributes(attributes, text)))
            if link is not None:
                trace_id, span_id, attributes = link
                span.links.append(Link(trace_id, span_id, attributes_of(attributes, text)))
        span.attributes.update(own)

    def _give(self, site: SpanSite, parent: int, facts: Any) -> None:
        assert site.gives is not None
        try:
            forwarded = dict(site.gives(facts))
        except Exception as mistake:
            site.disable("gives", mistake)
            return
        if parent >= self.first:
            self.forwarded.setdefault(parent, []).append((site.gives_to, forwarded))

    def _receive(self, site: SpanSite, parent: int, forwarded: Iterable[ForwardedFacts]) -> dict[str, Any]:
        """Return the facts that are for a call of this site, and pass the others on to the enclosing call."""
        received: dict[str, Any] = {}
        for target, facts in forwarded:
            if site.defined in target:
                received.update(facts)
            elif parent >= self.first:  # a call of another process never ends here
                self.forwarded.setdefault(parent, []).append((target, facts))
        return received

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
        span.process = self.process
        if not self.header.text:
            for attributes in (span.attributes, *(event.attributes for event in span.events)):
                for name in names.PRIVATE.intersection(attributes):
                    del attributes[name]
        return span


class _DerivedIds:
    """Ids of requests submitted before the recording began: derived from the process's, so every conversion agrees."""

    def __init__(self, header: Header) -> None:
        self._process = f"{header.trace_id} {header.origins[-1]}"
        self._count = count()

    def trace(self) -> str:
        """Return a trace id."""
        return self._next(16)

    def request_span(self) -> str:
        """Return a span id."""
        return self._next(8)

    def _next(self, size: int) -> str:
        return blake2b(f"{self._process} {next(self._count)}".encode(), digest_size=size).hexdigest()
