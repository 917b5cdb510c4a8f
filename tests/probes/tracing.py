"""Helpers that record with a counting clock and counting ids, read the folder back, and print the trace."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tracellm.probes.context.clock import Clock, Ids
from tracellm.probes.recording import Recording
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder, write_manifest

__all__ = ["outline", "record", "times"]


def record(
    folder: Path, run: Callable[[], Any], catalog: Iterable[Entry] = (), clock: Clock | None = None, **options: Any
) -> Trace:
    """Return the trace of `run`; its exceptions are swallowed, as the trace has them."""
    recording = Recording(
        folder, clock=clock or Clock.counting(), ids=Ids.counting(), script="script.py", catalog=catalog, **options
    )
    try:
        with recording:
            run()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
    write_manifest(folder, {"schema": 1, "probes": recording.stats})
    opened = RunFolder.open(folder)
    assert opened.problems == []
    return opened.trace


def outline(trace: Trace, *shown: str) -> str:
    """Return one line per span, indented by depth: its name, the attributes `shown`, and its error."""
    lines = []
    for root in trace.roots:
        for depth, span in trace.walk(root):
            attributes = [
                f"{name.rpartition('.')[2]}={span.attributes[name]}" for name in shown if name in span.attributes
            ]
            error = [f"!{span.error}"] if span.error is not None else []
            lines.append("  " * depth + " ".join([span.name, *attributes, *error]))
    return "\n".join(lines)


def times(span: Span) -> tuple[int, int]:
    """Return start and end as readings of the counting clock."""
    origin, step = 1_700_000_000_000_000_000, 1000
    return (span.start_ns - origin) // step, (span.end_ns - origin) // step


def thread_of(span: Span) -> str:
    """Return the thread of a span."""
    return span.attributes.get(names.THREAD_NAME, "main")
