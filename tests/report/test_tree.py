"""The call tree across threads and processes: no call lost, no time counted twice."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trace.machines import START, Recorder
from tests.trace.server_run import served
from tests.trees import bottom_up, fold
from tracellm.report.tree.invariants import check
from tracellm.report.tree.nodes import Node, call_tree, walk
from tracellm.trace import names
from tracellm.trace.merge import merge
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import steps

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def tree(*recorders: Recorder) -> list[Node]:
    """Return the call tree of these processes."""
    return call_tree(Trace([span for one in recorders for span in one.spans], [one.process for one in recorders]))


def owns(roots: list[Node]) -> dict[str, int]:
    """Return the own time of each call by name."""
    return {node.span.name: node.own_ns for node in walk(roots)}


def test_what_runs_elsewhere_takes_nothing_from_its_caller():
    """A child in another process or thread leaves its caller's own time unchanged."""
    main, engine = Recorder(1), Recorder(2)
    start = main.call("A.start", 0, 100)
    main.call("A.wait", 40, 90, start)
    core = engine.call("B.run", 10, 1000, start)
    engine.call("B.step", 20, 30, core)
    engine.call("B.sockets", 25, 900, core, "input")
    main.call("A.watch", 50, 2000, start, "monitor")
    roots = tree(main, engine)
    assert owns(roots) == {
        "A.start": 50, "A.wait": 50, "B.run": 980, "B.step": 10, "B.sockets": 875, "A.watch": 1950,
    }  # fmt: skip
    assert [child.span.name for child in roots[0].children] == ["B.run", "A.wait", "A.watch"]


def test_calls_of_different_threads_are_not_folded():
    """Calls of two processes or threads are not folded; calls of one pool's threads are."""
    main, engine = Recorder(1), Recorder(2)
    start = main.call("A.start", 0, 100)
    for at, (recorder, thread) in enumerate(
        [(main, ""), (engine, ""), (main, "pool_0"), (main, "pool_1"), (main, "x")]
    ):
        recorder.call("B.f", 10 * at, 10 * at + 5, start, thread)
    [root] = bottom_up(tree(main, engine), fold)
    assert [node.count for node in root.children] == [1, 1, 2, 1]


def test_engines_made_with_other_arguments_are_not_folded():
    """Engines made on one line with different arguments are not folded."""
    main = Recorder(1)
    start = main.call("script.py", 0, 100)
    for at, arguments in enumerate([["model=a"], ["model=a"], ["multiprocess_mode=True"]]):
        made = main.call("LLM.__init__", 10 * at, 10 * at + 5, start)
        made.attributes |= {names.PHASE: "startup", names.ARGUMENTS: arguments}
    [root] = bottom_up(tree(main), fold)
    assert [node.count for node in root.children] == [2, 1]


def test_a_requests_life_is_no_node():
    """A request's span is no node, and its children go to the submitting call or become roots."""
    main = Recorder(1)
    life: dict[str, Any] = {names.REQUEST_ID: "0"}
    submit = main.call("A.submit", 0, 100)
    main.call("A.first", 1, 5, submit)
    inside = main.call(names.REQUEST_SPAN, 2, 90, submit, "", **life)
    main.call("A.of_life", 10, 20, inside)
    main.call("A.also", 30, 35, inside)
    main.call("A.last", 15, 25, submit)
    alone = main.call(names.REQUEST_SPAN, 200, 290, None, "", **life)
    main.call("A.of_root", 210, 220, alone)
    roots = tree(main)
    assert [root.span.name for root in roots] == ["A.submit", "A.of_root"]
    assert [child.span.name for child in roots[0].children] == ["A.first", "A.of_life", "A.last", "A.also"]
    assert roots[0].own_ns == 100 - 4 - 15 - 5


def test_steps_of_another_process():
    """Steps of every process are found in order, below the script."""
    run = served()
    for i, span in enumerate(span for span in run.engine.spans if span.method == "step_fn"):
        span.name = "EngineCore.step_fn"
        span.attributes[names.STEP_INDEX] = i + 1
    trace = run.trace()
    merge(trace.processes, trace.spans)
    trace = Trace(trace.spans, trace.processes)
    assert [step.index for step in steps(trace)] == [1, 2, 3]
    top = call_tree(trace)[0]
    assert {step.span.span_id for step in steps(trace)} <= {node.span.span_id for node in walk([top])}
    assert all(step.span.process is not top.span.process for step in steps(trace))


@st.composite
def threads(draw: st.DrawFn) -> list[Recorder]:
    """Nested calls in several threads of two processes; a thread's first calls have any parent."""
    recorders = [Recorder(1), Recorder(2)]
    everything: list[Span] = [recorders[0].call("main.py", 0, 1000)]

    def nest(recorder: Recorder, thread: str, parent: Span, begin: int, end: int, depth: int) -> None:
        at = begin
        while depth < 4 and at < end and draw(st.booleans()):
            at += draw(st.integers(1, 40))
            until = at + draw(st.integers(0, 60))
            if until > end:
                break
            span = recorder.call(f"A.{draw(st.sampled_from('fgh'))}", at, until, parent, thread)
            everything.append(span)
            nest(recorder, thread, span, at, until, depth + 1)
            at = until

    nest(recorders[0], "", everything[0], 0, 1000, 0)
    for number in range(draw(st.integers(0, 3))):
        parent = draw(st.sampled_from(everything))
        nest(recorders[number % 2], f"t{'abc'[number]}", parent, parent.start_ns - START, 3000, 1)
    return recorders


@patient
@given(threads())
def test_time_is_conserved(recorders: list[Recorder]):
    """Folding keeps spans, order and time, and own times sum to each thread's busy time."""
    spans = [span for one in recorders for span in one.spans]
    trace = Trace(spans, [one.process for one in recorders])
    roots = call_tree(trace)
    sums: dict[tuple[str, int, str], int] = {}
    for node in walk(roots):
        sums[node.span.thread] = sums.get(node.span.thread, 0) + node.own_ns
    assert sums == {thread: _covered([span for span in spans if span.thread == thread]) for thread in sums}
    check(call_tree(trace), bottom_up(roots, fold))


def _covered(spans: list[Span]) -> int:
    """Return the time during which at least one span is open."""
    total, reached = 0, 0
    for span in sorted(spans, key=lambda span: span.start_ns):
        total += max(0, span.end_ns - max(span.start_ns, reached))
        reached = max(reached, span.end_ns)
    return total
