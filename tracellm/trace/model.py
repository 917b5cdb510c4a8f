"""The recording as plain data: spans, links, events, processes, and the trace that holds them.

A trace is what `tracellm.trace.run_folder` reads from disk and what everything in `tracellm.report` works on. It knows
nothing of how the spans were recorded. Names and meaning are OpenTelemetry's
(https://opentelemetry.io/docs/specs/otel/).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tracellm.trace import names
from tracellm.trace.names import Level

__all__ = ["AttributeValue", "Event", "Link", "Process", "Span", "Trace"]

AttributeValue = str | bool | int | float | list[str] | list[bool] | list[int] | list[float]
"""What an attribute may hold: OpenTelemetry's attribute types."""


@dataclass(slots=True)
class Link:
    """A span's pointer to another that is not its parent, such as a step's to the requests it serves."""

    trace_id: str
    span_id: str
    attributes: dict[str, AttributeValue] = field(default_factory=dict)


@dataclass(slots=True)
class Event:
    """Something that happened at one moment within a span: an exception, a mark of the user's."""

    name: str
    time_ns: int
    attributes: dict[str, AttributeValue] = field(default_factory=dict)


@dataclass(slots=True)
class Process:
    """A process that recorded: its id, its part in the engine, and the OTLP resource attributes that describe it."""

    pid: int
    name: str
    attributes: dict[str, AttributeValue] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Span:
    """One call, or one request's life.

    Times are wall-clock nanoseconds since 1970, converted from the recording process's monotonic clock. `trace_id` is
    32 and `span_id` 16 hexadecimal digits. `error` is None for a span that ended well, else the exception in one line.
    """

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_ns: int
    end_ns: int
    attributes: dict[str, Any] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    error: str | None = None
    process: Process | None = None

    @property
    def duration_ns(self) -> int:
        """Nanoseconds from start to end."""
        return self.end_ns - self.start_ns

    @property
    def open(self) -> bool:
        """Whether the recording ended before this did: then `end_ns` is the last moment that is known of."""
        return self.attributes.get(names.OPEN) is True

    @property
    def lifeline(self) -> str:
        """Whose method it is: a lifeline of the sequence diagram."""
        told = self.attributes.get(names.LIFELINE)
        return (isinstance(told, str) and told) or self.name.rpartition(".")[0] or self.name

    @property
    def method(self) -> str:
        """The called function's own name, without its class: `step_fn` of `EngineCore.step_fn`."""
        return self.name.rpartition(".")[2]

    @property
    def level(self) -> Level:
        """How deep in the engine the call sits; a user's own probe counts as `request`."""
        told = self.attributes.get(names.LEVEL)
        return told if told in names.LEVELS else "request"


class Trace:
    """All spans of a run, ordered by start, with the tree they form."""

    def __init__(self, spans: Iterable[Span], processes: Iterable[Process] = ()) -> None:
        self.spans: list[Span] = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
        self.processes: list[Process] = list(processes)

    @cached_property
    def by_id(self) -> dict[str, Span]:
        """Every span by its span id."""
        return {span.span_id: span for span in self.spans}

    @cached_property
    def _children(self) -> dict[str, list[Span]]:
        children: dict[str, list[Span]] = {}
        for span in self.spans:
            if span.parent_span_id is not None:
                children.setdefault(span.parent_span_id, []).append(span)
        return children

    @cached_property
    def roots(self) -> list[Span]:
        """Spans without a parent in this trace, ordered by start; a span whose parent was lost is one of them."""
        return [span for span in self.spans if span.parent_span_id is None or span.parent_span_id not in self.by_id]

    def children(self, span: Span) -> list[Span]:
        """The spans called directly from `span`, ordered by start."""
        return self._children.get(span.span_id, [])

    def parent(self, span: Span) -> Span | None:
        """The span that called `span`, or None for a root."""
        return self.by_id.get(span.parent_span_id) if span.parent_span_id else None

    def walk(self, span: Span) -> Iterator[tuple[int, Span]]:
        """`span` and all below it, depth first in the order of the calls, each with its depth (0 for `span`)."""
        stack = [(0, span)]
        while stack:
            depth, current = stack.pop()
            yield depth, current
            stack.extend((depth + 1, child) for child in reversed(self.children(current)))

    def named(self, *span_names: str) -> list[Span]:
        """The spans with one of these names, ordered by start."""
        return [span for span in self.spans if span.name in span_names]
