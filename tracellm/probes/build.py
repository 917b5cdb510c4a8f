"""Records become spans: names, ids, times, attributes, and the facts that one call tells of another.

All of it runs in the writer's thread. Calls are built in the order they ended, so a call's children come before it;
what a child gives to a call around it waits here until that call ends. Of calls and requests that have not ended yet
there are spans too, marked as such: whoever reads them keeps them only if no other came after them.

Most calls have nothing to tell but their arguments and result. Their spans never come to be: scribe.py writes the text
that they would have.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from tracellm.probes.clock import Clock, Ids
from tracellm.probes.errors import Remembered, stack_trace
from tracellm.probes.ledger import Ledger
from tracellm.probes.otel.notes import Notes
from tracellm.probes.spec import Probe
from tracellm.probes.state import Made, Note, Open, Place, Record, Told
from tracellm.trace import names
from tracellm.trace.model import Event, Span

__all__ = ["Builder"]

Given = tuple[tuple[str, ...], dict[str, Any]]
"""Facts for a call around, and the names of the functions one of which that must be."""

_MASK = (1 << 64) - 1
_LONGEST_TEXT = 16_384
_MOST_CALLS = 1 << 48  # of a process: ids beyond are another's


class Builder:
    """Makes the spans of one process.

    `root` is the number of the call that stands for the script; calls without a parent are its children, or those of
    `parent`, trace id and span id of the call in another process that started this one. `outside` are those of a span
    around the script, which is not in the recording. `text=False` leaves out what
    names.PRIVATE lists, the messages of exceptions, and texts in attributes of the user's own.

    Attributes:
        ledger: what is known across calls.
        given: what calls that have ended gave to those around them, by the number of the next one around.
        told_open: the calls under way of which there is a span without an end.
        notes: what users told of calls under way, through OpenTelemetry.
        calls, capture_ns: how many have ended, and how long they took to capture what is told of them.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        root: int,
        text: bool,
        parent: tuple[str, str] | None = None,
        outside: tuple[str, str] | None = None,
    ) -> None:
        self.ledger = Ledger(ids, clock.wall, self.span_id, text)
        self._clock = clock
        self._ids = ids
        self._text = text
        self._root = root
        self._origins = [(root, ids.first_span - root)]
        self._outside = None if outside is None else outside[1]
        trace_id = ids.trace() if outside is None else outside[0]
        self._trace_id, self._outermost = parent or (trace_id, self.span_id(root))
        self._fixed: dict[tuple[Probe, Any], tuple[str, dict[str, Any]]] = {}
        self.given: dict[int, list[Given]] = {}
        self.told_open: set[int] = set()
        self.notes = Notes()
        self.calls = 0
        self.capture_ns = 0

    def described(self) -> dict[str, Any]:
        """What `as_described` takes, in plain data: for a process that makes the spans of this one."""
        return {
            "clock": [self._clock.wall_ns, self._clock.monotonic_ns],
            "text": self._text,
            "root": self._root,
            "origins": self._origins,
            "trace_id": self._trace_id,
            "outermost": self._outermost,
            "outside": self._outside,
            "untold": [*self.ledger.untold],
        }

    @classmethod
    def as_described(cls, told: Mapping[str, Any]) -> Self:
        """A builder that makes the same spans; ids of its own making are not those that the other will make."""
        ids = Ids(first_span=sum(told["origins"][0]))
        builder = cls(Clock(int, *told["clock"]), ids, told["root"], told["text"])
        builder._origins = [tuple(one) for one in told["origins"]]
        builder._trace_id, builder._outermost = told["trace_id"], told["outermost"]
        builder._outside = told["outside"]
        builder.ledger.untold = frozenset(told["untold"])
        return builder

    @property
    def origin(self) -> tuple[int, int]:
        """The first call of this process, and what is to be added to the numbers of its calls for their span ids."""
        return self._origins[-1]

    @property
    def root(self) -> int:
        """The call that stands for the script."""
        return self._root

    @property
    def shift_ns(self) -> int:
        """What is to be added to a reading of the clock for the wall-clock time."""
        return self._clock.wall(0)

    def continue_in_child(self, first_call: int) -> Ids:
        """This process is a fork: its own calls, from `first_call` on, get ids that its parent will not give."""
        self._ids = Ids()
        self._origins.append((first_call, self._ids.first_span - first_call))
        self.ledger = Ledger(self._ids, self._clock.wall, self.span_id, self._text)
        self.given.clear()
        self.told_open.clear()
        self.notes = Notes()
        self.calls = self.capture_ns = 0
        return self._ids

    def build(self, record: Record | Note | Made | Told) -> Iterator[Span]:
        """The call's span, and those of requests that ended with it."""
        if isinstance(record, Note):
            record.tell(self.ledger, record.facts)
            yield from map(self._publish, self.ledger.take_ended())
            return
        if isinstance(record, Made):
            self.told_open.discard(record.number)
            yield self._publish(record.make(self))
            return
        if isinstance(record, Told):
            self.notes.keep(record.call or self._root, record)
            return
        probe, call, parent, place, owner, start, end, captured, facts, error = record
        self.calls += 1
        self.capture_ns += captured - end
        self.told_open.discard(call)
        span = self._span(call, probe, parent, place, owner, start, end)
        attributes = span.attributes
        given = self.given.pop(call, ())
        if facts is not None:
            self._tell(probe, facts, attributes)
        if call in self.notes.of:
            self.notes.add_to(span, call, self._clock.wall, self._text)
        if error is not None:
            self._fail(span, error)
        mine = self.pass_on(probe, parent, given) if given else {}
        if facts is not None and probe.gives is not None:
            self._give(probe, parent, facts)
        if probe.observe is not None:
            try:
                probe.observe(self.ledger, span, facts, mine)
            except Exception as mistake:
                probe.disable("observe", mistake)
        yield self._publish(span)
        yield from map(self._publish, self.ledger.take_ended())

    def count(self, record: Record) -> None:
        """Of a call that has no span: how long it took to capture what is told of it, and what it gives."""
        probe, call, parent, _, _, _, end, captured, facts, _ = record
        self.capture_ns += captured - end
        if given := self.given.pop(call, None):  # what it passes on comes before what it gives
            self.pass_on(probe, parent, given)
        if facts is not None and probe.gives is not None:
            self._give(probe, parent, facts)

    def unfinished(self, calls: Mapping[int, Open | Made]) -> Iterator[Span]:
        """Spans without an end of these calls, once each, and of the requests under way."""
        for call, one in calls.items():
            if call not in self.told_open:
                self.told_open.add(call)
                span = one.make(self) if isinstance(one, Made) else self._span(call, *one, one[-1])
                span.attributes[names.OPEN] = True
                yield self._publish(span)
        for life in self.ledger.unfinished():
            yield self._publish(life)

    def close(self, end: int) -> Iterator[Span]:
        """The spans of requests that never ended."""
        self.ledger.close(self._clock.wall(end))
        yield from map(self._publish, self.ledger.take_ended())

    # -- parts of a span ----------------------------------------------------------------------------------------------

    def _span(
        self, call: int, probe: Probe, parent: int, place: Place | None, owner: type | None, start: int, end: int
    ) -> Span:
        trace_id, parent_id = self.place_of(parent, place)
        name, attributes = self.alike(probe, owner, None if place is None else place.thread_name)
        if parent < self._root and self.is_outside(place):
            attributes[names.OUTSIDE] = True
        return Span(
            name=name,
            trace_id=trace_id,
            span_id=self.span_id(call),
            parent_span_id=self._outside if call == self._root else parent_id,
            start_ns=self._clock.wall(start),
            end_ns=self._clock.wall(end),
            attributes=attributes,
        )

    def alike(self, probe: Probe, owner: type | None, thread_name: str | None) -> tuple[str, dict[str, Any]]:
        """Name and attributes that the spans of all calls of this probe, on this class, in this thread, share."""
        name, fixed = self._fixed.get((probe, owner)) or self._fix(probe, owner)
        attributes = fixed.copy()
        if thread_name is not None:
            attributes[names.THREAD_NAME] = thread_name
        return name, attributes

    def more(self, probe: Probe, facts: Any, alike: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The attributes that a call's facts add to those that are `alike`; None where it would change these."""
        more: dict[str, Any] = {}
        if facts is not None:
            self._tell(probe, facts, more)
        return self.public(more) if more.keys().isdisjoint(alike) else None

    def public(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of the attributes that are to be recorded."""
        if self._text:
            return attributes
        return {name: value for name, value in attributes.items() if name not in names.PRIVATE}

    def place_of(self, call: int, place: Place | None) -> tuple[str, str | None]:
        """Trace id and span id that what is called from `call`, in this place, has for its own and its parent's."""
        begun = None if place is None else place.begun
        if begun is None or begun.recording != self._root:
            return self._trace_id, self.span_id(call) if call >= self._root else self._outermost
        return begun.trace_id, self.span_id(call) if call >= self._root else begun.parent

    def is_outside(self, place: Place | None) -> bool:
        """Whether the parent of outermost calls in this place is a user's span that is not in the recording."""
        begun = None if place is None else place.begun
        return begun is not None and begun.outside and begun.recording == self._root

    def _fix(self, probe: Probe, owner: type | None) -> tuple[str, dict[str, Any]]:
        """Name and attributes that all calls of this probe on this class share."""
        lifeline = probe.lifeline or (owner.__name__ if isinstance(owner, type) else "")
        name = probe.span_name or f"{owner.__name__ if isinstance(owner, type) else lifeline}.{probe.method}"
        fixed = {**probe.constants, names.LIFELINE: lifeline, names.LEVEL: probe.level}
        if len(self._fixed) < 10_000:
            self._fixed[probe, owner] = name, fixed
        return name, fixed

    def span_id(self, call: int) -> str:
        """The span id of a call of this recording."""
        for first, offset in reversed(self._origins):
            if call >= first:
                return f"{call + offset & _MASK:016x}"
        return self._outermost

    def call_of(self, span_id: str | None) -> int:
        """The call of this process that has this span id; 0 if none has."""
        if span_id is None:
            return 0
        first, offset = self._origins[-1]
        call = int(span_id, 16) - offset & _MASK
        return call if first <= call < first + _MOST_CALLS else 0

    def evaluate(self, probe: Probe, facts: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What a call's facts say, and what of it is a user's."""
        told: Mapping[str, Any] = {}
        if probe.attributes is not None:
            try:
                told = probe.attributes(facts)
            except Exception as mistake:
                probe.disable("attributes", mistake)
        return told, {} if probe.users_attributes is None else probe.users_attributes(facts)

    def _tell(self, probe: Probe, facts: Any, attributes: dict[str, Any]) -> None:
        """Add what a call's facts say."""
        told, users = self.evaluate(probe, facts)
        attributes.update(told)
        if users:
            for name, value in (users if self._text else _without_texts(users)).items():
                attributes.setdefault(name, value)

    def pass_on(self, probe: Probe, parent: int, given: Iterable[Given]) -> dict[str, Any]:
        """What of this was given to a call of this probe; the rest goes to the one around it."""
        mine: dict[str, Any] = {}
        for target, told in given:
            if probe.defined in target:
                mine.update(told)
            elif parent >= self.origin[0]:  # else it is another process's, and would never end here
                self.given.setdefault(parent, []).append((target, told))
        return mine

    def _give(self, probe: Probe, parent: int, facts: Any) -> None:
        try:
            told = dict(probe.gives(facts)) if probe.gives is not None else {}
        except Exception as mistake:
            probe.disable("gives", mistake)
            return
        if parent >= self.origin[0]:
            self.given.setdefault(parent, []).append((probe.gives_to, told))

    def _fail(self, span: Span, error: Remembered) -> None:
        kind, message, _ = error
        span.attributes[names.ERROR_TYPE] = kind
        span.error = f"{kind}: {message}" if message and self._text else kind
        told = {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: message[:_LONGEST_TEXT]}
        if self._text:
            told[names.EXCEPTION_STACKTRACE] = stack_trace(error)[:_LONGEST_TEXT]
        span.events.append(Event("exception", span.end_ns, {**told}))

    def _publish(self, span: Span) -> Span:
        if not self._text:
            for attributes in (span.attributes, *(event.attributes for event in span.events)):
                for name in names.PRIVATE.intersection(attributes):
                    del attributes[name]
        return span


def _without_texts(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if isinstance(value, bool | int | float)}
