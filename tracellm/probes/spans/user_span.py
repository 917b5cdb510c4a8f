"""Spans of the program's own, which it made with OpenTelemetry, out of what a record file has of them."""

from collections.abc import Callable, Mapping
from typing import Any

from tracellm.trace.model import Event, Link, Span

__all__ = ["span_from"]


def span_from(data: Mapping[str, Any], wall: Callable[[int], int]) -> Span:
    """The recording's span of such data (otel/user_spans.py); `wall` gives the wall-clock time of the clock's."""
    return Span(
        data["name"],
        data["trace_id"],
        data["span_id"],
        data["parent_span_id"],
        wall(data["start"]),
        wall(data["end"]),
        attributes=dict(data["attributes"]),
        events=[Event(name, wall(time), attributes) for name, time, attributes in data["events"]],
        links=[Link(*one) for one in data["links"]],
        error=data["error"],
    )
