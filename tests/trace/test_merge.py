"""Merging clocks: all processes of a machine share one clock, and durations are unchanged."""

from pathlib import Path
from typing import Any

import pytest

from tests.trace.machines import SECOND, START, Recorder, process
from tracellm.trace import names, otlp
from tracellm.trace.merge import merge
from tracellm.trace.model import Event
from tracellm.trace.run_folder import RunFolder

DAY = 86_400 * SECOND


def merged(*recorders: Recorder) -> None:
    """Merge these processes, and check that every call keeps its duration."""
    processes, spans = process(recorders)
    before = [span.duration_ns for span in spans]
    merge(processes, spans)
    assert [span.duration_ns for span in spans] == before


def starts(recorder: Recorder) -> list[int]:
    """Return the starts of a recorder's spans, in nanoseconds since the beginning."""
    return [span.start_ns - START for span in recorder.spans]


def test_one_machine_with_agreeing_clocks_is_left_as_it_is():
    """Two processes that read the same clocks at different times need no change."""
    main, engine = Recorder(1), Recorder(2, read_at=5 * SECOND, parent=1)
    main.send("ADD 0", 10, 20)
    engine.receive("ADD 0", 20, 40)
    merged(main, engine)
    assert (starts(main), starts(engine)) == ([10], [20])


@pytest.mark.parametrize("step", [3 * SECOND, -3 * SECOND])
def test_a_wall_clock_that_was_set_between_two_readings_does_not_matter(step: int):
    """On one machine the monotonic clock counts, by the first process's pair of readings."""
    main, engine = Recorder(1), Recorder(2, "EngineCore_0", skew=step, read_at=SECOND, parent=1)
    main.call("A.f", 10, 20)
    engine.call("B.f", 30, 40).events.append(Event("exception", engine.at(35)))
    merged(main, engine)
    assert (starts(main), starts(engine)) == ([10], [30])
    assert engine.spans[0].events[0].time_ns == START + 35


def test_the_first_process_is_the_one_that_no_other_started():
    """The times of the oldest process stay, in whichever order the files are read."""
    engine, main = Recorder(2, skew=-2 * SECOND, parent=1), Recorder(1)
    engine.call("B.f", 30, 40)
    main.call("A.f", 10, 20)
    merged(engine, main)
    assert (starts(main), starts(engine)) == ([10], [30])


def test_machines_of_one_name_are_told_apart():
    """Pairs of readings that are far apart belong to two machines, each with its wall clock."""
    main, other = Recorder(1), Recorder(2, boot=30 * DAY)
    main.call("A.f", 10, 20)
    other.call("B.f", 30, 40)
    merged(main, other)
    assert starts(other) == [30]


def test_recordings_without_readings_are_believed():
    """Recordings without clock readings, as of other programs, are unchanged."""
    main, other = Recorder(1), Recorder(2, skew=SECOND)
    for one in (main, other):
        one.call("A.f", 10, 20)
        del one.process.attributes[names.CLOCK_MONOTONIC]
    merged(main, other)
    assert starts(other) == [SECOND + 10]


def test_the_wall_clock_of_another_machine_is_believed():
    """Times of another machine are unchanged, even if a message then arrives before its send."""
    main, other = Recorder(1), Recorder(2, host="there", skew=-SECOND, boot=30 * DAY)
    main.send("ADD 0", 0, 100)
    other.receive("ADD 0", 200, 210)
    merged(main, other)
    assert starts(other) == [200 - SECOND]


@pytest.mark.parametrize("name", [names.CLOCK_WALL, names.CLOCK_MONOTONIC, names.PROCESS_PARENT_PID, names.HOST_NAME])
@pytest.mark.parametrize("value", ["x", -1, 2**62, [1], 0.5, True])
def test_damaged_readings(name: str, value: Any):
    """With damaged clock readings, merging ends and durations are unchanged."""
    main, other = Recorder(1), Recorder(2, "EngineCore_0", parent=1)
    other.process.attributes[name] = value
    main.send("ADD 0", 0, 100)
    other.receive("ADD 0", 200, 210)
    merged(main, other)


def test_a_run_folder_is_merged(tmp_path: Path):
    """Reading a folder merges its clocks and links its messages."""
    main, other = Recorder(1), Recorder(2, skew=-SECOND, parent=1)
    whole = other.call("B.loop", 50, 10_000)
    for at in range(0, 10_000, 1000):
        main.send(f"ADD {at}", at, at + 100)
        other.receive(f"ADD {at}", at + 110, at + 120, whole)
    (tmp_path / "trace").mkdir()
    for one, name in ((main, "main"), (other, "other")):
        (tmp_path / "trace" / f"{name}.jsonl").write_bytes(otlp.encode(one.process, one.spans))
    trace = RunFolder.open(tmp_path).trace
    assert len(trace.messages) == 10
    assert all(one.receive and one.receive.links for one in trace.messages)
    assert all(one.receive.start_ns - one.send.end_ns == 10 for one in trace.messages if one.receive)
    assert trace.orphans == []
