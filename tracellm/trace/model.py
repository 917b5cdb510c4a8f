"""A recording as plain data: spans, links, events, processes, and the trace that holds them.

`tracellm.trace.run_folder` reads a trace from disk; everything in `tracellm.report` works on it. It is independent of
how the spans were recorded. Names and meaning are OpenTelemetry's (https://opentelemetry.io/docs/specs/otel/).

A trace may have millions of spans, links and events: they are msgspec structs, which the garbage collector does not
scan (`msgspec.structs.replace` makes a changed copy).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import msgspec

from tracellm.trace import names
from tracellm.trace.gc_pause import gc_paused
from tracellm.trace.names import Level

__all__ = ["AttributeValue", "Event", "Link", "Message", "Process", "Span", "Trace"]

AttributeValue = str | bool | int | float | list[str] | list[bool] | list[int] | list[float]
"""Type of an attribute's value, as in OpenTelemetry."""


class Link(msgspec.Struct, gc=False):
    """A span's link to another that is not its parent, such as a step's to the requests in its batch."""

    trace_id: str
    span_id: str
    attributes: dict[str, AttributeValue] = msgspec.field(default_factory=dict)


class Event(msgspec.Struct, gc=False):
    """An event within a span: an exception, or one that the program added."""

    name: str
    time_ns: int
    attributes: dict[str, AttributeValue] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class Process:
    """A process that recorded: its id, its role in the engine, and the OTLP resource attributes that describe it."""

    pid: int
    name: str
    attributes: dict[str, AttributeValue] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Name of the machine; empty if not recorded."""
        return str(self.attributes.get(names.HOST_NAME, ""))


class Span(msgspec.Struct, gc=False, eq=False):
    """One call, or one request from its submission to its end.

    Times are wall-clock nanoseconds since 1970, converted from the process's monotonic clock. `trace_id` has 32 and
    `span_id` 16 hexadecimal digits. `error` is the exception in one line, or None. Spans read from disk share
    attributes, and empty links and events: assign new ones, never change them in place.
    """

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_ns: int
    end_ns: int
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    links: list[Link] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)
    error: str | None = None
    process: Process | None = None

    @property
    def duration_ns(self) -> int:
        """Nanoseconds from start to end."""
        return self.end_ns - self.start_ns

    @property
    def recording_ns(self) -> int:
        """Nanoseconds of the span's own time that the recording took."""
        value = self.attributes.get(names.RECORDING_DURATION)
        return max(0, min(value, self.duration_ns)) if type(value) is int else 0

    @property
    def open(self) -> bool:
        """True if the recording ended before the span did; `end_ns` is then the last known moment."""
        return self.attributes.get(names.OPEN) is True

    @property
    def lifeline(self) -> str:
        """The class that has the method: a lifeline of the sequence diagram."""
        value = self.attributes.get(names.LIFELINE)
        return (isinstance(value, str) and value) or self.name.rpartition(".")[0] or self.name

    @property
    def method(self) -> str:
        """The function's own name, without its class: `step_fn` of `EngineCore.step_fn`.

        A span that the program opened with OpenTelemetry is no function: its whole name, which may have dots.
        """
        return self.name if names.SCOPE in self.attributes else self.name.rpartition(".")[2]

    @property
    def thread(self) -> tuple[str, int, str]:
        """Machine, process id and thread; the name of the main thread is empty."""
        process, name = self.process, self.attributes.get(names.THREAD_NAME)
        return process.host if process else "", process.pid if process else 0, name if isinstance(name, str) else ""

    @property
    def level(self) -> Level:
        """Depth of the call in the engine; a probe of the user's own counts as `request`."""
        value = self.attributes.get(names.LEVEL)
        return value if value in names.LEVELS else "request"


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A message from one thread or process to another: the span that encoded it, and the one that decoded it.

    `receive` is None if its arrival was not recorded: it was lost, or the receiver's recording ended before.
    """

    send: Span
    receive: Span | None


class Trace:
    """All spans of a run, of all its processes, ordered by start, and the tree they form.

    A span's parent may be in another thread or process, and in another trace id: only span ids count.
    """

    def __init__(self, spans: Iterable[Span], processes: Iterable[Process] = ()) -> None:
        self.spans: list[Span] = sorted(
            spans, key=attrgetter("end_ns"), reverse=True
        )  # of spans with one start, the longest first
        self.spans.sort(key=attrgetter("start_ns"))
        self.processes: list[Process] = list(processes)

    @cached_property
    def by_id(self) -> dict[str, Span]:
        """Every span by its span id."""
        return {span.span_id: span for span in self.spans}

    @cached_property
    def _children(self) -> dict[str, list[Span]]:
        children: dict[str, list[Span]] = {}
        with gc_paused():
            for span in self.spans:
                if (parent := span.parent_span_id) is not None:
                    if (siblings := children.get(parent)) is None:
                        children[parent] = [span]
                    else:
                        siblings.append(span)
        return children

    @cached_property
    def roots(self) -> list[Span]:
        """Spans without a parent in this trace, ordered by start; also those whose parent was lost."""
        here = self.by_id
        return [span for span in self.spans if span.parent_span_id not in here]

    @cached_property
    def messages(self) -> list[Message]:
        """Messages between processes and threads, in the order in which they were sent."""
        from tracellm.trace.messages import pair  # that module imports this one

        return pair(self.spans)

    @property
    def unsent(self) -> list[Span]:
        """Spans of received messages whose send was not recorded, ordered by start."""
        from tracellm.trace.messages import is_receive

        known = {id(message.receive) for message in self.messages}
        return [span for span in self.spans if is_receive(span) and id(span) not in known]

    @cached_property
    def orphans(self) -> list[Span]:
        """Spans whose parent is neither recorded nor in another program; none in a sound recording.

        A `traceparent` header makes another program's span the parent of an HTTP request, or of a request if the
        trace has no HTTP request.
        """
        lost = [span for span in self.roots if span.parent_span_id is not None]
        from_http = {span.trace_id for span in self.spans if names.HTTP_METHOD in span.attributes} if lost else set()
        return [
            span
            for span in lost
            if names.HTTP_METHOD not in span.attributes
            and names.OUTSIDE not in span.attributes
            and not (span.name == names.REQUEST_SPAN and span.trace_id not in from_http)
        ]

    def children(self, span: Span) -> list[Span]:
        """Return the spans called directly from `span`, ordered by start."""
        return self._children.get(span.span_id, [])

    def parent(self, span: Span) -> Span | None:
        """Return the span that called `span`, or None for a root."""
        return self.by_id.get(span.parent_span_id) if span.parent_span_id else None

    def walk(self, span: Span) -> Iterator[tuple[int, Span]]:
        """Yield `span` and all below it, depth first in the order of the calls, each with its depth (0 for `span`)."""
        stack = [(0, span)]
        while stack:
            depth, current = stack.pop()
            yield depth, current
            stack.extend((depth + 1, child) for child in reversed(self.children(current)))

    def named(self, *span_names: str) -> list[Span]:
        """Return the spans with one of these names, ordered by start."""
        return [span for span in self.spans if span.name in span_names]
