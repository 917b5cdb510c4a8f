"""The spans that users open themselves, with OpenTelemetry's SDK or with its bare API, become part of the recording.

A span of the SDK goes wherever its program sends it, untouched; when it ends, it is recorded too. Without an SDK the
API makes spans that do nothing; while something is recorded it makes ours instead (api_span.py).

Times are readings of the recording's clock where the user gave none, so that a span lies within the calls around it
to the nanosecond; its events are moved along with it. Spans that are not sampled, and those that began before the
recording did, are not in it.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from tracellm.probes.caller import Where, caller, caller_attributes
from tracellm.probes.clock import Clock
from tracellm.probes.errors import remember
from tracellm.probes.otel.current import STARTED, PlaceOf, is_recorded
from tracellm.probes.otel.told import attributes_of, event_of, link_of
from tracellm.probes.spec import Mistake
from tracellm.probes.state import Made, Place, call_and_place, next_call, state
from tracellm.trace import names
from tracellm.trace.model import Event, Link, Span

__all__ = ["Started", "UserSpans"]

Function = Callable[..., Any]

_DROPPED = {
    names.DROPPED_ATTRIBUTES: "dropped_attributes",
    names.DROPPED_EVENTS: "dropped_events",
    names.DROPPED_LINKS: "dropped_links",
}
"""What counts, in a span of the SDK or of the bare API, that which was beyond its limits."""


@dataclass(frozen=True, slots=True)
class Started:
    """What is known of a span from its start.

    Attributes:
        number: from the counter of calls.
        recording: the first call of the recording.
        clock: the recording's clock then; None where the user said when it began.
        call, place: the innermost probed call then, and where that was.
        user: where in the user's code it was opened.
        waits: whether others may run in its thread while it goes on.
        outside: its parent is not in the recording.
    """

    number: int
    recording: int
    clock: int | None
    call: int
    place: Place
    user: Where | None
    waits: bool
    outside: bool


class UserSpans:
    """Records users' spans. `place_of` gives the ids of calls (Builder.place_of)."""

    def __init__(self, clock: Clock, text: bool, place_of: PlaceOf, mistakes: list[Mistake]) -> None:
        self._clock = clock
        self._text = text
        self._place_of = place_of
        self._mistakes = mistakes

    # -- what is patched in the SDK -----------------------------------------------------------------------------------

    def start(self, old: Function) -> Function:
        """`opentelemetry.sdk.trace.Span.start`, noted."""

        def start(span: Any, start_time: int | None = None, parent_context: Any = None) -> None:
            if state.append is None:
                return old(span, start_time=start_time, parent_context=parent_context)
            began = state.clock() if start_time is None else None
            old(span, start_time=start_time, parent_context=parent_context)
            if span.get_span_context().trace_flags.sampled:
                self.started(span, next_call(), began, parent_context)

        return start

    def end(self, old: Function) -> Function:
        """`opentelemetry.sdk.trace.Span.end`, after which the span is recorded."""

        def end(span: Any, end_time: int | None = None) -> None:
            ended = state.clock() if end_time is None else None
            old(span, end_time=end_time)
            self.ended(span, ended)

        return end

    # -- for all spans ------------------------------------------------------------------------------------------------

    def started(self, span: Any, number: int, clock: int | None, context: Any) -> None:
        """Note that a span has begun, with the parent that is in `context`, or is the current one if that is None."""
        try:
            call, place = call_and_place()
            parent = trace.get_current_span(context)
            outside = span.parent is not None and not is_recorded(parent)
            waits = _in_event_loop()
            started = Started(number, state.first, clock, call, place, caller(), waits, outside)
            setattr(span, STARTED, started)
            state.open[number] = Made(partial(self._span, span, started, None))
        except Exception as mistake:  # must not disturb the user's program
            self._stumble("start", mistake)

    def ended(self, span: Any, clock: int | None) -> None:
        """Record a span that has ended; `clock` is None where the user said when."""
        started, append = getattr(span, STARTED, None), state.append
        if started is None or append is None or started.recording != state.first:
            return
        if state.open.pop(started.number, None) is not None:
            append(Made(partial(self._span, span, started, (clock,)), started.number))

    def _span(self, span: Any, started: Started, ended: tuple[int | None] | None, builder: Any) -> Span:
        """The recording's span of a user's; `ended` is None while it is under way. Runs in the writer's thread."""
        ids = span.get_span_context()
        start = span.start_time if started.clock is None else self._clock.wall(started.clock)
        end = start
        if ended is not None:
            end = max(start, span.end_time if ended[0] is None else self._clock.wall(ended[0]))
        events = [
            event_of(one.name, one.attributes, one.timestamp + start - span.start_time, self._text)
            for one in tuple(span.events)
        ]
        made = Span(
            span.name,
            trace.format_trace_id(ids.trace_id),
            trace.format_span_id(ids.span_id),
            self._parent(span, started),
            start,
            end,
            attributes={**attributes_of(_copied(span.attributes), self._text), **_described(span, started)},
            links=[_link(one, self._text) for one in tuple(span.links)],
            events=events,
        )
        if span.status.status_code is StatusCode.ERROR:
            _fail(made, span.status.description if self._text else None)
        return made

    def _parent(self, span: Any, started: Started) -> str | None:
        """The span around it; of one in a span that is not sampled, and so not recorded, the call around both."""
        if span.parent is None or not span.parent.is_valid:
            return None
        if span.parent.trace_flags.sampled:
            return trace.format_span_id(span.parent.span_id)
        return self._place_of(started.call, started.place)[1]

    def _stumble(self, what: str, mistake: Exception) -> None:
        kind, message, _ = remember(mistake)
        told = Mistake(f"a span of the program's own is not recorded: its {what} raised {kind}", message)
        if told not in self._mistakes:
            self._mistakes.append(told)


def _in_event_loop() -> bool:
    events = sys.modules.get("asyncio.events")  # not to import it for who does not use it
    return events is not None and events._get_running_loop() is not None


def _described(span: Any, started: Started) -> dict[str, Any]:
    """Whose span it is, and where it was opened."""
    scope = span.instrumentation_scope
    name, version = (scope.name or "", scope.version or "") if scope is not None else ("", "")
    file = os.path.basename(started.user[0]) if started.user is not None else ""
    lifeline = file if name in ("", "__main__") and file else name or "opentelemetry"
    told: dict[str, Any] = {names.LIFELINE: lifeline, names.LEVEL: "request", names.SCOPE: name}
    if version:
        told[names.SCOPE_VERSION] = version
    if span.kind is not SpanKind.INTERNAL:
        told[names.SPAN_KIND] = span.kind.name.lower()
    if _is_sent(span):
        told[names.SENT] = True
    for name, what in _DROPPED.items():
        if dropped := getattr(span, what, 0):
            told[name] = dropped
    if started.waits:
        told[names.CALL_KIND] = "coroutine"
    if started.outside:
        told[names.OUTSIDE] = True
    if started.place.thread_name is not None:
        told[names.THREAD_NAME] = started.place.thread_name
    return {**told, **caller_attributes(started.user)}


def _is_sent(span: Any) -> bool:
    """Does the program's own SDK send it by OTLP? Then it is not to be sent a second time."""
    processors = getattr(getattr(span, "_span_processor", None), "_span_processors", ())
    exporters = (getattr(one, "span_exporter", None) for one in processors)
    return any(type(one).__module__.startswith("opentelemetry.exporter.otlp") for one in exporters)


def _copied(attributes: Any) -> dict[str, Any]:
    """The attributes of a span, which may be under way and be given others meanwhile."""
    for _ in range(10):
        with suppress(RuntimeError):
            return dict(attributes or {})
    return {}


def _link(link: Any, text: bool) -> Link:
    return link_of(link.context.trace_id, link.context.span_id, link.attributes, text)


def _fail(span: Span, description: str | None) -> None:
    """The span ended badly: how its description says, or the class of the exception that was told of last."""
    exceptions: list[Event] = [event for event in span.events if names.EXCEPTION_TYPE in event.attributes]
    kind = str(exceptions[-1].attributes[names.EXCEPTION_TYPE]) if exceptions else ""
    if kind:
        span.attributes.setdefault(names.ERROR_TYPE, kind)
    span.error = description or kind or "ERROR"
