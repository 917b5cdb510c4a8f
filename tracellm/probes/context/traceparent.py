"""W3C trace context: the `traceparent` header, which makes a span the parent of spans in another process.

https://www.w3.org/TR/trace-context/#traceparent-header
"""

import re

__all__ = ["HEADER", "is_sampled", "parse", "write"]

HEADER = "traceparent"

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def parse(header: str | None) -> tuple[str, str] | None:
    """Return the header's trace id and span id; None if it is missing or invalid."""
    match = _FORM.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    version, trace_id, span_id, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return trace_id, span_id


def is_sampled(header: str) -> bool:
    """Return whether a valid header has the sampled flag."""
    return bool(int(header.strip()[53:55], 16) & 1)


def write(trace_id: str, span_id: str) -> str:
    """Return the header for calls made from this span, with the sampled flag."""
    return f"00-{trace_id}-{span_id}-01"
