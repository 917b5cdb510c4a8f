"""Reading a trace is linear in the spans, for any shape; the work is counted in bytecodes."""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.big_traces import played
from tests.trace.machines import Recorder
from tracellm.trace import names, otlp
from tracellm.trace.model import Process, Span
from tracellm.trace.run_folder import RunFolder, write_manifest

FEW, TIMES = 160, 8

Recorded = list[tuple[Process, list[Span]]]


def engine(count: int) -> Recorded:
    """Steps of an engine in two processes."""
    found: dict[str, tuple[Process, list[Span]]] = {}
    for process, spans in played(4 * count, 2, batch=2, layers=1):
        found.setdefault(process.name, (process, []))[1].extend(spans)
    return list(found.values())


def chain(count: int) -> Recorded:
    """Each call makes the next."""
    main = Recorder(1)
    call = None
    for number in range(count):
        call = main.call("A.f", number, 3 * count - number, call)
    return [(main.process, main.spans)]


def chain_at_once(count: int) -> Recorded:
    """A chain of calls at the same time, innermost first, so that times do not show the callers."""
    [(process, spans)] = chain(count)
    for span in spans:
        span.start_ns = span.end_ns = spans[0].start_ns
    return [(process, spans[::-1])]


def roots(count: int) -> Recorded:
    """Root calls that all begin at once."""
    main = Recorder(1)
    for number in range(count):
        main.call("A.f", 0, number)
    return [(main.process, main.spans)]


def siblings(count: int) -> Recorded:
    """One call makes all others, none of which ends."""
    main = Recorder(1)
    first = main.call("A.f", 0, count)
    for number in range(count):
        main.call("A.g", number, number, first, "", **{names.OPEN: True})
    return [(main.process, main.spans)]


def circle(count: int) -> Recorded:
    """All spans are each other's ancestors, and many their own parents."""
    main = Recorder(1)
    for number in range(count):
        main.call("A.f", number, number + 1)
    for before, after in zip(main.spans, [*main.spans[1:], main.spans[0]], strict=True):
        before.parent_span_id = after.span_id
    for span in main.spans[::3]:
        span.parent_span_id = span.span_id
    return [(main.process, main.spans)]


def one_id(count: int) -> Recorded:
    """One message id, sent and received repeatedly."""
    main, core = Recorder(1), Recorder(2)
    for number in range(count):
        main.send("ADD 0", 100 * number, 100 * number + 10)
        core.receive("ADD 0", 100 * number + 20, 100 * number + 30)
    return [(one.process, one.spans) for one in (main, core)]


def one_id_of_threads(count: int) -> Recorded:
    """One message id within a process, each time in another thread."""
    main = Recorder(1)
    for number in range(count):
        main.send("ADD 0", 100 * number, 100 * number + 10, thread=f"a{number}")
        main.receive("ADD 0", 100 * number + 20, 100 * number + 30, thread=f"b{number}")
    return [(main.process, main.spans)]


def one_id_of_processes(count: int) -> Recorded:
    """One message id between processes, each of which sends one and receives one."""
    recorders = [Recorder(number + 1, f"p{number}") for number in range(count // 4)]
    for recorder in recorders:
        recorder.send("ADD 0", 100, 110)
        recorder.receive("ADD 0", 200, 210)
    return [(one.process, one.spans) for one in recorders]


def machines(count: int) -> Recorded:
    """Each process on its own machine, in a row, with contradicting clocks."""
    recorders = [
        Recorder(number + 1, f"p{number}", f"host{number}", skew=-(number % 7)) for number in range(count // 8)
    ]
    for number, (one, other) in enumerate(pairwise(recorders)):
        one.send(f"ADD {number}", 100, 110)
        other.receive(f"ADD {number}", 112, 120)
        other.send(f"OUTPUTS {number}", 130, 140)
        one.receive(f"OUTPUTS {number}", 139, 150)
    return [(one.process, one.spans) for one in recorders]


def circular(count: int) -> Recorded:
    """Pairs of machines whose messages each seem to precede the other's."""
    recorders = [Recorder(number + 1, f"p{number}", f"host{number}") for number in range(count // 4 * 2)]
    for number, one in enumerate(recorders):
        one.receive(f"ADD {number ^ 1}", 100, 101)
        one.send(f"ADD {number}", 102, 103)
    return [(one.process, one.spans) for one in recorders]


def restarts(count: int) -> Recorded:
    """One machine name with processes whose readings are hours apart."""
    recorders = [Recorder(number + 1, f"p{number}", skew=number * 2 * 3600 * 10**9) for number in range(count // 4)]
    for recorder in recorders:
        recorder.call("A.f", 0, 10)
    return [(one.process, one.spans) for one in recorders]


def work(recorded: Recorded, folder: Path) -> int:
    """Return the number of bytecodes to read a recording and walk through it."""
    (folder / "trace").mkdir(parents=True)
    write_manifest(folder, {"schema": 1})
    with (folder / "trace" / "all.jsonl").open("wb") as stream:
        for process, spans in recorded:
            for at in range(0, len(spans), 64):
                stream.write(otlp.encode(process, spans[at : at + 64]))
    counted = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        trace = RunFolder.open(folder).trace
        assert sum(1 for root in trace.roots for _ in trace.walk(root)) == len(trace.spans)
        assert len(trace.messages) + len(trace.unsent) + len(trace.orphans) <= 2 * len(trace.spans)
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.parametrize(
    "shape",
    [
        engine, chain, chain_at_once, roots, siblings, circle, one_id, one_id_of_threads, one_id_of_processes, machines,
        circular, restarts,
    ],
)  # fmt: skip
def test_work_grows_as_the_spans_do(shape: Callable[[int], Recorded], tmp_path: Path):
    """Eight times the spans take at most nine times the work."""
    few, many = work(shape(FEW), tmp_path / "few"), work(shape(FEW * TIMES), tmp_path / "many")
    assert many <= (TIMES + 1) * few, f"{few} and {many} bytecodes"
