"""Attributes, events and links that users set through OpenTelemetry, as plain data for a recording.

Works without OpenTelemetry installed.
"""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from tracellm.trace import names
from tracellm.trace.model import AttributeValue

__all__ = ["attributes_of", "event_attributes", "event_of_exception", "link_data"]

_RESERVED = {names.THREAD_NAME, names.HTTP_METHOD, names.MESSAGE_OPERATION, names.MESSAGE_ID}
"""Names by which reports recognize the engine's threads, requests and messages, besides all under `tracellm.`."""

_NUMBERS = (bool, int, float)


def attributes_of(attributes: Mapping[str, Any] | None, text: bool) -> dict[str, AttributeValue]:
    """Return a user's attributes as plain data; without `text`, only the numbers.

    Reserved names get the prefix `user.`.
    """
    kept: dict[str, AttributeValue] = {}
    for key, value in (attributes or {}).items():
        plain = _plain(value)
        if plain is not None and (text or _is_number(plain)):
            name = str(key)
            kept[f"user.{name}" if name in _RESERVED or name.startswith("tracellm.") else name] = plain
    return kept


def event_of_exception(
    error: BaseException, attributes: Mapping[str, Any] | None, escaped: bool
) -> tuple[str, dict[str, Any]]:
    """Return name and attributes of an exception's event, as OpenTelemetry's SDK makes them."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"
    values = {
        names.EXCEPTION_TYPE: name,
        names.EXCEPTION_MESSAGE: str(error),
        names.EXCEPTION_STACKTRACE: "".join(traceback.format_exception(error)),
        "exception.escaped": str(escaped),
    }
    return "exception", {**values, **(attributes or {})}


def event_attributes(attributes: Mapping[str, Any] | None, text: bool) -> dict[str, AttributeValue]:
    """Return a user's event's attributes as plain data; an exception's type is kept even without `text`."""
    kept = attributes_of(attributes, text)
    if attributes and names.EXCEPTION_TYPE in attributes:
        kept[names.EXCEPTION_TYPE] = str(attributes[names.EXCEPTION_TYPE])
    return kept


def link_data(
    context: Any, attributes: Mapping[str, Any] | None, text: bool
) -> tuple[str, str, dict[str, AttributeValue]]:
    """Return trace id, span id and attributes of a user's link to the span with this `SpanContext`."""
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", attributes_of(attributes, text)


def _is_number(value: AttributeValue) -> bool:
    return isinstance(value, _NUMBERS) or (isinstance(value, list) and all(isinstance(v, _NUMBERS) for v in value))


def _plain(value: Any) -> AttributeValue | None:
    try:
        return _copy(value)
    except Exception:  # raised by the value's own class
        return type(value).__name__


def _copy(value: Any) -> AttributeValue | None:
    """Return a plain copy, as text where a recording has no such type."""
    if value is None:
        return None
    for kind in (*_NUMBERS, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        items = [_copy(item) for item in value]
        kinds = {type(item) for item in items}
        if kinds <= {str} or kinds == {bool} or kinds == {int} or kinds == {float}:
            return items  # type: ignore[return-value]
        return [str(item) for item in value]
    return str(value)
