"""Merging clocks: whatever they say, no message arrives before it was sent, and nothing else is disturbed."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trace.machines import SECOND, START, Recorder, process
from tracellm.trace import names, otlp
from tracellm.trace.merge import merge
from tracellm.trace.messages import pairs, sent_at
from tracellm.trace.model import Event, Span, Trace
from tracellm.trace.problems import Problem
from tracellm.trace.run_folder import RunFolder

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
DAY = 86_400 * SECOND


def merged(*recorders: Recorder) -> list[Problem]:
    """Merge these processes, and hold what must be so of every merging; what it said."""
    processes, spans = process(recorders)
    problems: list[Problem] = []
    before = [(span.start_ns, span.end_ns) for span in spans]
    merge(processes, spans, problems)
    for span, (start, end) in zip(spans, before, strict=True):
        assert span.duration_ns >= end - start
        if not problems:
            assert span.duration_ns == end - start
    for one in recorders:
        told = [(span.start_ns, span.end_ns) for span in one.spans]
        was = before[spans.index(one.spans[0]) :][: len(told)] if told else []
        for i, (start, end) in enumerate(told):
            for j, (other_start, other_end) in enumerate(told):
                if was[i][0] <= was[j][0]:
                    assert start <= other_start
                if was[i][0] <= was[j][0] and was[j][1] <= was[i][1]:
                    assert start <= other_start <= other_end <= end
    return problems


def early(*recorders: Recorder) -> list[tuple[Span, Span]]:
    """The messages that arrive before they were sent."""
    _, spans = process(recorders)
    return [(send, receive) for send, receive in pairs(spans) if receive and receive.start_ns < sent_at(send)]


def starts(recorder: Recorder) -> list[int]:
    """When its spans start, in nanoseconds since the beginning of all."""
    return [span.start_ns - START for span in recorder.spans]


def test_one_machine_with_agreeing_clocks_is_left_as_it_is():
    """Two processes that read their pairs at different times, of the same clocks, need no change."""
    main, engine = Recorder(1), Recorder(2, read_at=5 * SECOND, parent=1)
    main.send("ADD 0", 10, 20)
    engine.receive("ADD 0", 20, 40)
    assert merged(main, engine) == []
    assert (starts(main), starts(engine)) == ([10], [20])


@pytest.mark.parametrize("step", [3 * SECOND, -3 * SECOND])
def test_a_wall_clock_that_was_set_between_two_readings_does_not_matter(step: int):
    """On one machine the monotonic clock counts, from the first process' pair, with or without messages."""
    main, engine = Recorder(1), Recorder(2, "EngineCore_0", skew=step, read_at=SECOND, parent=1)
    main.call("A.f", 10, 20)
    engine.call("B.f", 30, 40).events.append(Event("exception", engine.at(35)))
    assert merged(main, engine) == []
    assert (starts(main), starts(engine)) == ([10], [30])
    assert engine.spans[0].events[0].time_ns == START + 35


def test_the_first_process_is_the_one_that_no_other_started():
    """The times that stay are those of the oldest process, in whichever order the files are read."""
    engine, main = Recorder(2, skew=-2 * SECOND, parent=1), Recorder(1)
    engine.call("B.f", 30, 40)
    main.call("A.f", 10, 20)
    merged(engine, main)
    assert (starts(main), starts(engine)) == ([10], [30])


def test_machines_of_one_name_are_told_apart():
    """When pairs of readings are far apart they are of two machines, and each wall clock is believed."""
    main, other = Recorder(1), Recorder(2, boot=30 * DAY)
    main.call("A.f", 10, 20)
    other.call("B.f", 30, 40)
    assert merged(main, other) == []
    assert starts(other) == [30]


def test_another_machine_is_believed_until_a_message_contradicts():
    """A wall clock that is wrong by less than messages can tell stays as it is."""
    main, other = Recorder(1), Recorder(2, host="there", skew=50, boot=30 * DAY)
    main.send("ADD 0", 0, 100)
    other.receive("ADD 0", 200, 210)
    other.send("OUTPUTS 0", 300, 310)
    main.receive("OUTPUTS 0", 400, 410)
    assert merged(main, other) == []
    assert starts(other) == [250, 350]


@pytest.mark.parametrize("skew", [DAY, -DAY])
def test_another_machine_is_put_between_its_messages(skew: int):
    """With messages both ways the middle of what they allow is taken, whatever the wall clock said."""
    main, other = Recorder(1), Recorder(2, host="there", skew=skew, boot=30 * DAY)
    main.send("ADD 0", 0, 100)
    other.receive("ADD 0", 200, 210)
    other.send("OUTPUTS 0", 300, 310)
    main.receive("OUTPUTS 0", 430, 440)
    assert merged(main, other) == []
    # its times may be moved by -100 (the ADD took no time) to +120 (the OUTPUTS took none)
    assert starts(other) == [210, 310]


def test_with_messages_one_way_only_the_bound_is_taken():
    """A machine that is too early is moved until its first message arrives when it was sent."""
    main, other = Recorder(1), Recorder(2, host="there", skew=-SECOND, boot=30 * DAY)
    main.send("ADD 0", 0, 100)
    other.receive("ADD 0", 200, 210)
    assert merged(main, other) == []
    assert starts(other) == [100]


def test_bounds_are_carried_on_to_a_third_machine():
    """A machine that only the second one talks to is placed after it, though it never hears of the first."""
    main = Recorder(1)
    second = Recorder(2, host="second", skew=-SECOND, boot=30 * DAY)
    third = Recorder(3, host="third", skew=5 * SECOND, boot=60 * DAY)
    main.send("ADD 0", 0, 100)
    second.receive("ADD 0", 200, 210)
    second.send("ADD 1", 300, 310)
    third.receive("ADD 1", 400, 410)
    third.send("OUTPUTS 1", 500, 510)
    second.receive("OUTPUTS 1", 600, 610)
    assert merged(main, second, third) == []
    assert early(main, second, third) == []
    assert (starts(second), starts(third)) == ([100, 200, 500], [300, 400])


def test_bounds_that_meet_in_a_circle_are_all_kept():
    """The middle for the second machine would leave no room for the third, so it gives way."""
    main = Recorder(1)
    second = Recorder(2, host="second", skew=-170, boot=30 * DAY)
    third = Recorder(3, host="third", skew=-155, boot=60 * DAY)
    for source, target, at, took in [(main, second, 0, 70), (second, main, 1000, 130), (main, third, 2000, 5),
                                     (third, main, 3000, 5), (second, third, 4000, 5)]:  # fmt: skip
        source.send(f"ADD {at}", at, at)
        target.receive(f"ADD {at}", at + took, at + took)
    assert merged(main, second, third) == []
    assert early(main, second, third) == []
    assert starts(main)[0] == 0


def test_a_call_in_another_machine_comes_after_the_call_that_made_it():
    """Also without messages: a process is not older than the call that started it."""
    main, other = Recorder(1), Recorder(2, host="there", skew=-SECOND, boot=30 * DAY)
    caller = main.call("A.f", 100, 900)
    other.call("B.f", 200, 300, caller)
    assert merged(main, other) == []
    assert starts(other) == [100]


def test_messages_may_show_that_one_machine_is_two():
    """Two containers of one name, started within the hour: the messages contradict a common clock."""
    main, other = Recorder(1), Recorder(2, boot=1060 * SECOND)
    main.send("ADD 0", 0, 100)
    other.receive("ADD 0", 200, 210)
    other.send("OUTPUTS 0", 300, 310)
    main.receive("OUTPUTS 0", 400, 410)
    assert merged(main, other) == []
    assert early(main, other) == []
    assert starts(other) == [200, 300]  # the wall clocks agree with the messages


def drifting() -> tuple[Recorder, Recorder]:
    """Two machines, one of which runs a tenth too slow, that exchange messages which take no time."""
    main, other = Recorder(1), Recorder(2, host="there", boot=30 * DAY, speed=-100_000)
    whole = other.call("B.loop", 50, 10_000)
    for i in range(10):
        at = 1000 * i
        main.send(f"ADD {i}", at, at + 100)
        other.receive(f"ADD {i}", at + 100, at + 110, whole)
        other.send(f"OUTPUTS {i}", at + 200, at + 210, whole)
        main.receive(f"OUTPUTS {i}", at + 210, at + 220)
    return main, other


def test_clocks_of_different_speed():
    """No amount will do, so time is moved on where it must be; the messages hold, and a problem says so."""
    main, other = drifting()
    [problem] = merged(main, other)
    assert problem.code == "clocks_drift"
    assert problem.values["count"] > 0
    assert early(main, other) == []
    processes, spans = process([main, other])
    assert all(message.receive for message in Trace(spans, processes).messages)


def test_an_answer_before_its_question_is_told():
    """Messages in a circle fit no clock: one of them counts as lost."""
    main, other = Recorder(1), Recorder(2, host="there", boot=30 * DAY)
    main.receive("OUTPUTS 0", 100, 110)
    main.send("ADD 0", 200, 210)
    other.receive("ADD 0", 100, 110)
    other.send("OUTPUTS 0", 200, 210)
    codes = {problem.code: problem.values["count"] for problem in merged(main, other)}
    assert codes.keys() == {"clocks_drift", "messages_circular"}
    assert codes["messages_circular"] == 1
    processes, spans = process([main, other])
    assert sorted(message.receive is None for message in Trace(spans, processes).messages) == [False, True]


def test_recordings_without_readings_are_believed():
    """Spans of other programs tell nothing of their clocks; on one machine they are left alone."""
    main, other = Recorder(1), Recorder(2, skew=SECOND)
    for one in (main, other):
        one.call("A.f", 10, 20)
        del one.process.attributes[names.CLOCK_MONOTONIC]
    assert merged(main, other) == []
    assert starts(other) == [SECOND + 10]


@pytest.mark.parametrize("name", [names.CLOCK_WALL, names.CLOCK_MONOTONIC, names.PROCESS_PARENT_PID, names.HOST_NAME])
@pytest.mark.parametrize("value", ["x", -1, 2**62, [1], 0.5, True])
def test_damaged_readings(name: str, value: Any):
    """Whatever a damaged file says of a process, merging ends and keeps the invariant."""
    main, other = Recorder(1), Recorder(2, "EngineCore_0", parent=1)
    other.process.attributes[name] = value
    main.send("ADD 0", 0, 100)
    other.receive("ADD 0", 200, 210)
    merged(main, other)
    assert early(main, other) == []


def test_a_run_folder_is_merged(tmp_path: Path):
    """What is read from a folder is merged and linked, and problems are those of the folder."""
    (tmp_path / "trace").mkdir()
    for one, shift in zip(drifting(), ("main", "other"), strict=True):
        (tmp_path / "trace" / f"{shift}.jsonl").write_bytes(otlp.encode(one.process, one.spans))
    run = RunFolder.open(tmp_path)
    assert [problem.code for problem in run.problems if isinstance(problem, Problem)] == [
        "manifest_missing",
        "clocks_drift",
    ]
    assert len(run.trace.messages) == 20
    assert all(message.receive and message.receive.links for message in run.trace.messages)
    assert run.trace.orphans == []


@st.composite
def histories(draw: st.DrawFn, *, speeds: bool) -> list[Recorder]:
    """Processes on some machines with whatever clocks, and messages between them that took some time."""
    hosts: list[dict[str, Any]] = [
        {
            "host": f"host{i}",
            "skew": draw(st.integers(-DAY, DAY)),
            "boot": draw(st.sampled_from([0, 1000 * SECOND, 5 * DAY])),
            "speed": draw(st.integers(-200_000, 200_000)) if speeds else 0,
        }
        for i in range(draw(st.integers(1, 3)))
    ]
    recorders: list[Recorder] = []
    for pid in range(1, draw(st.integers(2, 4)) + 1):
        host = dict(draw(st.sampled_from(hosts)))
        host["skew"] += draw(st.sampled_from([0, 0, SECOND, -SECOND]))  # somebody set the clock
        recorders.append(Recorder(pid, read_at=draw(st.integers(0, 100)), parent=1 if pid > 1 else None, **host))
    now = 0
    wholes = [one.call("A.whole", 0, 10**6) for one in recorders]
    for number in range(draw(st.integers(0, 12))):
        source, target = draw(st.permutations(range(len(recorders))))[:2]
        now += draw(st.integers(0, 1000))
        took, travelled = draw(st.integers(0, 50)), draw(st.integers(0, 500))
        message = f"ADD {draw(st.integers(0, 3))}-{source}-{target}"
        recorders[source].send(message, now, now + took, wholes[source])
        now += took + travelled + draw(st.integers(1, 100))
        recorders[target].receive(message, now, now + 10, wholes[target])
        if number % 3 == 0:
            recorders[target].call("A.f", now + 1, now + 5, recorders[target].spans[-1])
    return recorders


@patient
@given(histories(speeds=False))
def test_no_clock_hides_what_came_first(recorders: list[Recorder]):
    """Constant errors of clocks are found: no problem, no changed length, no message too early."""
    assert merged(*recorders) == []
    assert early(*recorders) == []


@patient
@given(histories(speeds=True))
def test_not_even_one_of_another_speed(recorders: list[Recorder]):
    """With clocks of different speed lengths may grow, but order and nesting stay and no message is too early."""
    problems = merged(*recorders)
    assert {problem.code for problem in problems} <= {"clocks_drift"}
    assert early(*recorders) == []


@patient
@given(histories(speeds=True))
def test_merging_is_done_with_once(recorders: list[Recorder]):
    """The same files give the same times in whatever order they are read, and the first machine keeps its times."""
    processes, spans = process(recorders)
    before = [(span.start_ns, span.end_ns) for span in spans]
    problems = merged(*recorders)
    once = [(span.start_ns, span.end_ns) for span in spans]
    for span, (start, end) in zip(spans, before, strict=True):
        span.start_ns, span.end_ns = start, end
    merge(processes[::-1], spans[::-1], [])
    assert [(span.start_ns, span.end_ns) for span in spans] == once
    if not problems:
        assert once[: len(recorders[0].spans)] == before[: len(recorders[0].spans)]


@patient
@given(st.lists(st.tuples(*[st.integers(0, 2)] * 2, *[st.integers(0, 50)] * 2, st.integers(0, 3)), max_size=12))
def test_nonsense_is_told(told: list[tuple[int, int, int, int, int]]):
    """Messages at random fit no clock; then those that are paired still arrive after they were sent."""
    recorders = [Recorder(i + 1, host=str(i), boot=i * DAY) for i in range(3)]
    for source, target, sent, came, number in told:
        recorders[source].send(f"ADD {number}", sent, sent + 2)
        recorders[target].receive(f"ADD {number}", came, came + 2)
    processes, spans = process(recorders)
    problems: list[Problem] = []
    merge(processes, spans, problems)
    trace = Trace(spans, processes)
    assert all(message.receive.start_ns >= message.send.end_ns for message in trace.messages if message.receive)
    lost = [problem.values["count"] for problem in problems if problem.code == "messages_circular"]
    apart = sum(send.thread != receive.thread for send, receive in pairs(spans) if receive)
    assert sum(message.receive is not None for message in trace.messages) >= apart - sum(lost)
