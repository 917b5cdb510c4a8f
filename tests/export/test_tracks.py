"""Tracks of nested calls, each with its true times, within its caller or on its own track."""

from hypothesis import given
from hypothesis import strategies as st

from tests.export.runs import run_of_tasks, run_of_two
from tests.report.traces import hello
from tracellm.report.export.chosen import Chosen
from tracellm.report.export.timeline import ProcessTracks, Track, tracks
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace

PROCESSES = [Process(7, "main"), Process(8, "EngineCore_0"), Process(7, "main", {names.HOST_NAME: "other"})]


@st.composite
def any_calls(draw: st.DrawFn) -> list[Span]:
    """Calls of several threads: callees may begin with their callers, outlive them, or run elsewhere."""
    spans: list[Span] = []
    for number in range(draw(st.integers(1, 30))):
        caller = draw(st.sampled_from([None, *spans]))
        start = (caller.start_ns if caller else 0) + draw(st.integers(0, 6))
        elsewhere = caller is None or draw(st.integers(0, 4)) == 0
        attributes = {}
        if kind := draw(st.sampled_from(["", "", "coroutine", "generator", "loop"])):
            attributes[names.CALL_KIND] = kind
        thread = draw(st.sampled_from(["", "pool"])) if elsewhere else caller and caller.thread[2]
        if thread:
            attributes[names.THREAD_NAME] = thread
        process = draw(st.sampled_from(PROCESSES)) if caller is None or elsewhere else caller.process
        spans.append(
            Span(f"C.m{number % 4}", "1" * 32, f"{number:016x}", caller.span_id if caller else None, start,
                 start + draw(st.integers(0, 8)), attributes, process=process)
        )  # fmt: skip
    return draw(st.permutations(spans))


def check(trace: Trace, found: list[ProcessTracks]) -> None:
    """Check the properties of all tracks."""
    placed: list[str] = []
    for process in found:
        for track in process.tracks:
            open_calls: list[Span] = []
            moment = 0
            for depth, span in track.calls:
                del open_calls[depth:]
                assert len(open_calls) == depth
                if open_calls:
                    assert open_calls[-1] is trace.parent(span), "drawn within what did not call it"
                    assert open_calls[-1].start_ns <= span.start_ns <= span.end_ns <= open_calls[-1].end_ns
                assert span.process is process.process
                assert span.thread[2] == track.thread
                open_calls.append(span)
                placed.append(span.span_id)
            for kind, span in track.events():
                time = span.start_ns if kind == "begin" else span.end_ns
                assert time >= moment, "events of a track are out of order"
                moment = time
    assert sorted(placed) == sorted(span.span_id for span in trace.spans if span.name != "llm_request")
    numbers = [track.tid for process in found for track in process.tracks]
    assert len(set(numbers)) == len(numbers)
    assert len({process.pid for process in found}) == len(found)


@given(any_calls())
def test_any_calls_are_placed_once_and_nest(spans: list[Span]):
    """Each of any overlapping calls is on one track, in order of time, within its caller or outermost."""
    trace = Trace(spans, PROCESSES)
    check(trace, tracks(Chosen(trace)))


def only(found: list[ProcessTracks]) -> list[Track]:
    """Return the tracks of a run of one process."""
    [process] = found
    return process.tracks


def test_a_thread_that_runs_one_call_at_a_time_is_one_track():
    """All calls of a plain run are in the main thread's track, with the process id as its number."""
    trace = hello()
    [track] = only(tracks(Chosen(trace)))
    assert (track.name, track.tid, len(track.calls)) == ("MainThread", 1, len(trace.spans))
    check(trace, tracks(Chosen(trace)))


def test_processes_and_threads_have_tracks_of_their_own():
    """Each process of a client and an engine core has its main thread first, then others by name."""
    found = tracks(Chosen(run_of_two()))
    assert [(process.name, process.pid) for process in found] == [("main", 10), ("EngineCore_0", 11)]
    assert [[track.name for track in process.tracks] for process in found] == [
        ["MainThread", "process_outputs_socket"],
        ["MainThread", "process_input_sockets", "process_output_sockets"],
    ]


def test_tasks_of_an_event_loop_are_named_after_what_they_run():
    """Concurrent chats are on separate tracks with their calls, named after their tasks."""
    trace = run_of_tasks()
    found = tracks(Chosen(trace))
    check(trace, found)
    names_of = [track.name for track in found[0].tracks]
    assert names_of[0] == "MainThread"
    assert {
        "OpenAIServingChat.create_chat_completion",
        "OpenAIServingChat.create_chat_completion (2)",
        "AsyncLLM.output_handler",
    } <= set(names_of)


def test_the_thread_is_its_first_calls():
    """A call without a recorded caller that lasts the whole run keeps the main thread's track."""
    [main, *_] = tracks(Chosen(run_of_tasks()))[0].tracks
    assert [span.name for depth, span in main.calls if depth == 0] == ["serve"]


def test_one_after_the_other_share_a_track():
    """An ended coroutine's track is reused by the next of its name."""

    def call(number: int, start: int, end: int, parent: str | None = None, kind: str = "") -> Span:
        attributes = {names.CALL_KIND: kind} if kind else {}
        return Span("A.run", "1" * 32, f"{number:016x}", parent, start, end, attributes, process=PROCESSES[0])

    main = call(0, 0, 100)
    runs = [call(number, 10 * number, 10 * number + 9, main.span_id, "coroutine") for number in range(1, 6)]
    trace = Trace([main, *runs])
    assert [len(track.calls) for track in only(tracks(Chosen(trace)))] == [1, 5]


def test_a_generators_turns_leave_its_consumer_in_place():
    """Calls made while a generator is open stay within the caller that consumes it."""

    def call(number: int, start: int, end: int, parent: Span | None) -> Span:
        above = parent.span_id if parent else None
        return Span(f"f{number}", "1" * 32, f"{number:016x}", above, start, end, process=PROCESSES[0])

    outer = call(0, 0, 100, None)
    generator = call(1, 10, 90, outer)
    between = call(2, 20, 30, outer)
    within = call(3, 40, 50, generator)
    first, second = only(tracks(Chosen(Trace([outer, generator, between, within]))))
    assert [span.name for _, span in first.calls] == ["f0", "f2"]
    assert [(depth, span.name) for depth, span in second.calls] == [(0, "f1"), (1, "f3")]


def test_calls_of_no_length_stay_within_their_callers():
    """Calls that began and ended at one moment, as after a kill, nest in the order of the calls."""
    spans = [
        Span(f"f{n}", "1" * 32, f"{n:016x}", f"{n - 1:016x}" if n else None, 5, 5, process=PROCESSES[0])
        for n in range(4)
    ]
    [track] = only(tracks(Chosen(Trace(reversed(spans)))))
    assert [(depth, span.name) for depth, span in track.calls] == [(0, "f0"), (1, "f1"), (2, "f2"), (3, "f3")]
