"""Recordings of a few spans, and the sending of an ended one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.big_traces.recorded import span_data
from tracellm.probes.context.call_context import USER_SPAN
from tracellm.probes.export.sender import Sender
from tracellm.probes.export.sender_process import settings
from tracellm.probes.record.record_file import END, HEADER, OPEN, RECORDS, Header, RecordFile, encode
from tracellm.probes.spans.tail import RecordTail
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["TRACE", "send", "sender", "spans", "write"]

TRACE = "0123456789abcdef" * 2
MAIN = {names.PROCESS_PID: 1, names.PROCESS_NAME: "main"}


def spans(count: int, **options: Any) -> list[Span]:
    """Return spans named by their numbers."""
    return [Span(str(n), TRACE, f"{n + 1:016x}", None, n, n + 1, **options) for n in range(count)]


def write(
    traces: Path, *frames: list[Span], under_way: Sequence[Span] = (), process: dict[str, Any] | None = None
) -> Path:
    """Write a recording with these spans, all opened by the program, into the folder `traces`."""
    file = RecordFile(traces / "main-1.records")
    file.append(encode(HEADER, Header({**MAIN, **(process or {})}, (0, 0), 1, [(1, 1)], TRACE, "b" * 16)))
    file.append(encode(OPEN, [(int(span.span_id, 16), USER_SPAN, 0, 0, 0, span_data(span)) for span in under_way]))
    first = 0
    for frame in frames:
        records = [
            (USER_SPAN, int(one.span_id, 16), 0, 0, one.start_ns, one.end_ns, span_data(one), None) for one in frame
        ]
        file.append(encode(RECORDS, first, records))
        first += len(frame)
    file.append(encode(END, 10))
    file.close()
    return traces


def sender(traces: Path) -> Sender:
    """Return a sender of the recording in the folder `traces`, configured by the environment."""
    wanted = settings(os.environ)
    assert wanted is not None
    return Sender(RecordTail(traces, entries={}), wanted)


def send(traces: Path) -> tuple[int, int, list[str]]:
    """Send an ended recording, and return its account."""
    one = sender(traces)
    one.end()
    one.run()
    return one.account()
