"""Writes a big trace as a recorder does: its calls become the records of probed calls, in a record file.

So the real conversion can be measured. Spans that a run combines from several calls (steps, requests, messages) are
written complete, as the spans of a program's own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.big_traces import played
from tracellm.probes.context.call_context import USER_SPAN
from tracellm.probes.record.record_file import (
    DEFINITIONS,
    END,
    HEADER,
    OPEN,
    RECORDS,
    SUFFIX,
    Header,
    RecordFile,
    encode,
)
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import SCHEMA, TRACE_FOLDER, write_manifest

__all__ = ["record_run", "span_data"]

_CONSTANT = (names.CODE_FUNCTION, names.CODE_FILE, names.CODE_LINE, names.LIFELINE, names.LEVEL)
_PLAIN = {*_CONSTANT, names.ARGUMENTS, names.RESULT}
_IN_A_FRAME = 300  # records, about one step


def record_run(folder: Path, spans: int, **shape: Any) -> Path:
    """Write and return the record file of a run of one process; `shape` has further arguments of `played`."""
    write_manifest(folder, {"schema": SCHEMA, "script": "big.py", "status": "finished"})
    parts = played(spans, 1, **shape)
    process, ended = next(parts)
    root = int(ended[0].span_id, 16)
    header = Header(
        {**process.attributes, names.PROCESS_PID: process.pid, names.PROCESS_NAME: process.name},
        (0, 0),
        1,
        [(1, root - 1)],
        ended[0].trace_id,
        ended[0].span_id,
    )
    file = RecordFile(folder / TRACE_FOLDER / f"main-{process.pid}{SUFFIX}")
    file.append(encode(HEADER, header))
    writer = _Writer(file, root - 1)
    writer.add(ended)
    for _, more in parts:
        writer.add(more)
    writer.flush()
    file.append(encode(END, 0))
    file.close()
    return file.path


class _Writer:
    """Writer of spans as records; `offset` is the difference between span ids and the numbers of calls."""

    def __init__(self, file: RecordFile, offset: int) -> None:
        self._file = file
        self._offset = offset
        self._sites: dict[tuple[str, tuple[str, ...]], int] = {}
        self._records: list[Any] = []
        self._written = 0

    def add(self, spans: Sequence[Span]) -> None:
        """Append these spans, in the order in which they ended."""
        for span in spans:
            number = self._number(span.span_id)
            if span.open:
                self._file.append(encode(OPEN, [(number, USER_SPAN, 0, 0, 0, span_data(span))]))
            elif span.parent_span_id is None or not span.attributes.keys() <= _PLAIN:
                self._records.append((USER_SPAN, number, 0, 0, span.start_ns, span.end_ns, span_data(span), None))
            else:
                self._records.append(self._call(span, number))
            if len(self._records) >= _IN_A_FRAME:
                self.flush()

    def flush(self) -> None:
        """Write the remaining records."""
        self._file.append(encode(RECORDS, self._written, self._records))
        self._written += len(self._records)
        self._records.clear()

    def _number(self, span_id: str | None) -> int:
        return int(span_id, 16) - self._offset if span_id else 0

    def _call(self, span: Span, number: int) -> Any:
        arguments = [argument.partition("=") for argument in span.attributes.get(names.ARGUMENTS, ())]
        result = span.attributes.get(names.RESULT)
        facts = *((5, value) for _, _, value in arguments), None if result is None else (5, result)
        site = self._site(span, tuple(name for name, _, _ in arguments))
        return site, number, self._number(span.parent_span_id), 0, span.start_ns, span.end_ns, facts, None

    def _site(self, span: Span, arguments: tuple[str, ...]) -> int:
        key = span.name, arguments
        if key not in self._sites:
            self._sites[key] = len(self._sites)
            attributes = {name: span.attributes[name] for name in _CONSTANT if name in span.attributes}
            definition = {"name": span.name, "attributes": attributes, "facts": "arguments", "names": arguments}
            self._file.append(encode(DEFINITIONS, [(self._sites[key], definition)], []))
        return self._sites[key]


def span_data(span: Span) -> dict[str, Any]:
    """Return a span as a record file has one of the program's own (otel/user_spans.py)."""
    return {
        "name": span.name,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "start": span.start_ns,
        "end": span.end_ns,
        "attributes": span.attributes,
        "events": [(item.name, item.time_ns, item.attributes) for item in span.events],
        "links": [(item.trace_id, item.span_id, item.attributes) for item in span.links],
        "error": span.error,
    }
