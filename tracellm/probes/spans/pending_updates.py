"""Attributes, events and links that users set on calls under way, through OpenTelemetry's current span.

They are kept until the calls end; a part of the builder (builder.py).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tracellm.probes.context.user_attributes import attributes_of, event_attributes
from tracellm.trace.model import Event, Link, Span

__all__ = ["PendingUpdates"]

Update = Sequence[Any]
"""`(attributes, event, link)`, the latter None where there is none: a USER_UPDATE record's facts (call_context.py)."""

_MOST = 50_000  # of half a kilobyte each


class PendingUpdates:
    """The last attributes, events and links that were set on calls which have not ended.

    Some programs set more on a call that has ended; that never gets to a span, and must not be kept for ever.

    Attributes:
        of: by the number of the call.
        let_go: how many were not kept.
    """

    def __init__(self) -> None:
        self.of: dict[int, deque[Update]] = {}
        self.let_go = 0
        self._count = 0

    def keep(self, call: int, update: Update) -> None:
        """Keep this until the call ends."""
        self.of.setdefault(call, deque()).append(update)
        self._count += 1
        if self._count > _MOST:
            first, oldest = next(iter(self.of.items()))
            oldest.popleft()
            self._count -= 1
            self.let_go += 1
            if not oldest:
                del self.of[first]

    def add_to(self, span: Span, call: int, wall: Callable[[int], int], text: bool) -> None:
        """Add what was set on this call to its span; attributes of the recording's own are not replaced."""
        notes = self.of.pop(call)
        self._count -= len(notes)
        own = dict(span.attributes)
        for attributes, event, link in notes:
            span.attributes.update(attributes_of(attributes, text))
            if event is not None:
                name, attributes, time, is_wall = event
                span.events.append(Event(name, time if is_wall else wall(time), event_attributes(attributes, text)))
            if link is not None:
                trace_id, span_id, attributes = link
                span.links.append(Link(trace_id, span_id, attributes_of(attributes, text)))
        span.attributes.update(own)
