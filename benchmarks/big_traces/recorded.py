"""A big trace as the recorder writes it: its calls become records as probed calls leave them, and the real writer runs.

So what is measured is the writer's own work, in its own thread, with its pauses. Calls go through it as they do in a
run; what a run would put together of several calls (steps, requests' lives, messages) is handed to it ready made.
"""

import time
from pathlib import Path
from typing import Any

from tracellm.probes.build import Builder
from tracellm.probes.desk import Assignment, Desk
from tracellm.probes.listeners import Listeners
from tracellm.probes.writer import Writer

from benchmarks.big_traces import played
from tracellm.probes.clock import Clock, Ids
from tracellm.probes.spec import Probe
from tracellm.probes.state import Made, Note, Record, Told, state
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import SCHEMA, TRACE_FOLDER, write_manifest

__all__ = ["record_run"]

_CONSTANT = (names.CODE_FUNCTION, names.CODE_FILE, names.CODE_LINE)
_PLAIN = {*_CONSTANT, names.LIFELINE, names.LEVEL, names.ARGUMENTS, names.RESULT}
_MOST_WAITING = 30_000


def record_run(folder: Path, spans: int, **shape: Any) -> dict[str, float]:
    """Write a run folder of one process; what is returned is what the writer says of itself.

    `shape` is as in `played`.
    """
    write_manifest(folder, {"schema": SCHEMA, "script": "big.py", "status": "finished"})
    parts = played(spans, 1, **shape)
    process, ended = next(parts)
    root = int(ended[0].span_id, 16)
    builder = Builder(Clock(time.perf_counter_ns, 0, 0), Ids(first_span=root, trace=lambda: ended[0].trace_id), 1, True)
    problems: list[str] = []
    nobody = Listeners([], problems.append)
    file = folder / TRACE_FOLDER / f"main-{process.pid}.jsonl"
    desk = Desk(Assignment(file, process, builder, nobody, None, problems.append))
    writer = Writer(desk, nobody, problems)
    records = _Records(root - 1)
    writer.start()
    try:
        _append(writer, records, ended)
        for _, more in parts:
            _append(writer, records, more)
    finally:
        writer.stop(0)
        state.open.clear()
    if problems:
        raise RuntimeError("; ".join(problems))
    return desk.effort.told(desk.told(), writer.held_up_ns)


def _append(writer: Writer, records: "_Records", ended: list[Span]) -> None:
    for span in ended:
        if span.open:
            state.open[records.number(span.span_id)] = Made(lambda _, span=span: span)  # type: ignore[misc]
        else:
            state.open.pop(records.number(span.span_id), None)
            writer.buffer.append(records.of(span))
    while len(writer.buffer) > _MOST_WAITING:  # the engine would be slower than this
        time.sleep(0.001)


class _Records:
    """Makes records of spans; `offset` is what span ids have more than the numbers of calls."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._probes: dict[str, Probe] = {}

    def number(self, span_id: str | None) -> int:
        """The number of the call with this id; 0 for none."""
        return int(span_id, 16) - self._offset if span_id else 0

    def of(self, span: Span) -> Record | Note | Made | Told:
        """The record that this span comes from."""
        told = span.attributes
        if span.parent_span_id is None or not told.keys() <= _PLAIN:
            return Made(lambda _: span)
        facts = tuple(told.get(names.ARGUMENTS, ())), told.get(names.RESULT)
        call, parent = self.number(span.span_id), self.number(span.parent_span_id)
        start, end = span.start_ns, span.end_ns
        return self._probe(span), call, parent, None, None, start, end, end, facts, None

    def _probe(self, span: Span) -> Probe:
        probe = self._probes.get(span.name)
        if probe is None:
            told = span.attributes
            constants = {name: told[name] for name in _CONSTANT}
            probe = self._probes[span.name] = Probe(
                method=span.method,
                level=span.level,
                span_name=span.name,
                lifeline=span.lifeline,
                constants=constants,
                attributes=_attributes,
            )
        return probe


def _attributes(facts: tuple[tuple[str, ...], str | None]) -> dict[str, Any]:
    arguments, result = facts
    told: dict[str, Any] = {names.ARGUMENTS: list(arguments)} if arguments else {}
    return told if result is None else {**told, names.RESULT: result}
