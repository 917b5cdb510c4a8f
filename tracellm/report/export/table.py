"""A table with a row for each span, as CSV, for a spreadsheet, pandas, DuckDB or sqlite.

Rows are ordered by start. Attributes without a column of their own are in the last one, as a JSON object.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any

from tracellm.report.export.chosen import Chosen
from tracellm.report.export.timeline import MAIN_THREAD
from tracellm.report.export.values import as_json, clean
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["COLUMNS", "table"]

COLUMNS = (
    "start_ns",  # from the beginning of the run
    "duration_ns",
    "process",
    "pid",
    "thread",
    "level",
    "class",
    "name",
    "span_id",
    "parent_span_id",
    "trace_id",
    "links",  # span ids, separated by blanks
    "error",
    "events",  # a JSON array: name, time as above, attributes
    "attributes",
)

_ROWS = 1000  # rows in a piece


def table(chosen: Chosen) -> Iterator[bytes]:
    """Yield the file, piece by piece; lines end in CR LF (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for number, span in enumerate(chosen.spans(), start=1):
        writer.writerow(_row(span, chosen.begin_ns))
        if number % _ROWS == 0:
            yield _drain(text)
    yield _drain(text)


def _row(span: Span, begin: int) -> list[Any]:
    process = span.process
    in_columns = (names.LEVEL, names.LIFELINE, names.THREAD_NAME)
    rest = {name: value for name, value in span.attributes.items() if name not in in_columns}
    events = [[event.name, event.time_ns - begin, event.attributes] for event in span.events]
    return [
        span.start_ns - begin,
        span.duration_ns,
        process.name if process else "",
        process.pid if process else "",
        span.thread[2] or MAIN_THREAD,
        span.level,
        span.lifeline,
        span.name,
        span.span_id,
        span.parent_span_id or "",
        span.trace_id,
        " ".join(link.span_id for link in span.links),
        span.error or "",
        as_json(events) if events else "",
        as_json(rest),
    ]


def _drain(text: io.StringIO) -> bytes:
    piece = clean(text.getvalue())
    text.seek(0)
    text.truncate()
    return piece.encode()
