"""W3C trace context: the `traceparent` header, by which a span in one process becomes the parent of one in another.

https://www.w3.org/TR/trace-context/#traceparent-header
"""

import re

__all__ = ["HEADER", "is_sampled", "parse", "write"]

HEADER = "traceparent"

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def parse(header: str | None) -> tuple[str, str] | None:
    """Trace id and span id of a header; None for one that is not valid, which is as good as none."""
    match = _FORM.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    version, trace_id, span_id, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return trace_id, span_id


def is_sampled(header: str) -> bool:
    """Whether a valid header says that the spans below it are to be sampled."""
    return bool(int(header.strip()[53:55], 16) & 1)


def write(trace_id: str, span_id: str) -> str:
    """The header for what is called from this span; sampled, as it is being recorded."""
    return f"00-{trace_id}-{span_id}-01"
