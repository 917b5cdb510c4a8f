"""Attribute values as JSON, the same in every format."""

from typing import Any

import msgspec

from tracellm.trace.model import Span

__all__ = ["INT64", "as_json", "clean", "details", "own_details"]

INT64 = range(-(2**63), 2**63)
"""Integers of 64 bits; a larger one becomes a text."""


def as_json(value: Any) -> str:
    """Return a value as JSON that every reader takes.

    Half a surrogate pair, which no text file can hold, becomes `?`; an integer of more than 64 bits becomes a text.
    """
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return msgspec.json.encode(_clean(value)).decode()


def clean(text: str) -> str:
    """Return a text that UTF-8 can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return str(value) if isinstance(value, int) and value not in INT64 else value


def own_details(span: Span) -> dict[str, Any]:
    """Return facts of a span that are no attributes: its ids, its error, its links."""
    facts: dict[str, Any] = {"span_id": span.span_id, "trace_id": span.trace_id}
    if span.parent_span_id is not None:
        facts["parent_span_id"] = span.parent_span_id
    if span.error is not None:
        facts["error"] = span.error
    if span.links:
        facts["links"] = [link.span_id for link in span.links]
    return facts


def details(span: Span) -> dict[str, Any]:
    """Return the details that a viewer shows for a call: its ids, its error, its attributes by name."""
    return own_details(span) | span.attributes
