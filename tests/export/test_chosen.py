"""Selection of spans for an export, with their arrows and requests' lives."""

from tests.export.runs import run_of_two
from tests.report.traces import hello
from tracellm.report.export.chosen import Chosen
from tracellm.report.export.timeline import flows, request_tracks
from tracellm.trace import names
from tracellm.trace.model import Link, Process, Span, Trace
from tracellm.trace.names import LEVELS


def test_everything_without_a_choice():
    """Without a selection all recorded spans are exported."""
    trace = run_of_two()
    chosen = Chosen(trace)
    assert chosen.spans() is trace.spans
    assert len(chosen.calls) + len(chosen.requests) == len(trace.spans)


def test_down_to_a_level():
    """Deeper calls are left out, requests' lives stay, and each call's parent is its nearest exported caller."""
    trace = run_of_two()
    for detail in LEVELS:
        shown = set(LEVELS[: LEVELS.index(detail) + 1])
        actual = Trace(Chosen(trace, detail=detail).spans())
        assert all(span.level in shown for span in actual.spans)
        assert len(actual.named("llm_request")) == 2
        assert actual.roots == [actual.by_id[span.span_id] for span in trace.roots]
        for span in actual.spans:
            above = trace.parent(trace.by_id[span.span_id])
            while above is not None and above.span_id not in actual.by_id:
                above = trace.parent(above)
            assert actual.parent(span) is (actual.by_id[above.span_id] if above else None)
    assert all(span.parent_span_id in (None, *trace.by_id) for span in trace.spans), "the recording is as it was"


def test_what_failed_is_shown_at_every_level():
    """A call that ended with an exception is kept at any depth."""
    trace = hello()
    kernel = next(span for span in trace.spans if span.level == "kernel")
    kernel.error = "ValueError: no"
    assert Chosen(trace, detail="request").holds(kernel)


def test_a_class_in_focus():
    """A focus keeps calls into and out of a class, the calls that lead there, and roots."""
    trace = run_of_two()
    chosen = Chosen(trace, focus=["Scheduler"])
    assert {span.lifeline for span in chosen.calls} >= {"Scheduler", "EngineCoreProc"}
    assert not {span.lifeline for span in chosen.calls} & {"Qwen2Model", "GPUModelRunner", "OutputProcessor"}
    everywhere = Chosen(trace, detail="step", focus=["Scheduler"])
    assert {span.span_id for span in everywhere.calls} <= {span.span_id for span in chosen.calls}


def test_deep_chains_take_linear_time():
    """A hundred thousand nested calls, all but two left out, find their caller in one pass."""
    spans = []
    for n in range(100_000):
        level = "request" if n in (0, 99_999) else "kernel"
        parent = f"{n - 1:016x}" if n else None
        spans.append(Span("f", "1" * 32, f"{n:016x}", parent, n, 300_000 - n, {names.LEVEL: level}))
    chosen = Chosen(Trace(spans), detail="request")
    looked = [chosen.caller(span) for span in spans[1:]]
    assert {span.span_id for span in looked if span} == {"0" * 16}
    assert [span.parent_span_id for span in chosen.spans()] == [None, "0" * 16]


def test_calls_at_one_moment_take_linear_time():
    """Three hundred thousand calls of the same nanosecond are ordered in linear time, each after its caller."""
    count = 300_000
    spans = [
        Span("f", "1" * 32, f"{n:016x}", f"{n + 1:016x}" if n % 3 else None, 5, 5, {names.LEVEL: "kernel"})
        for n in range(count)
    ]
    calls = Chosen(Trace(spans)).calls
    position = {span.span_id: number for number, span in enumerate(calls)}
    assert len(calls) == len(position) == count
    assert all(position.get(str(span.parent_span_id), -1) < position[span.span_id] for span in calls)


def test_arrows_of_two_processes():
    """Arrows are each message, each start of a thread or process, and each request's way through its steps."""
    trace = run_of_two(prompts=2, tokens=3)
    found = flows(Chosen(trace))
    assert len({flow.id for flow in found}) == len(found)
    messages = [flow for flow in found if flow.kind == "message"]
    assert [flow.name for flow in messages] == ["ADD", "ADD", "OUTPUTS", "OUTPUTS", "OUTPUTS"]
    assert all(one.process is not other.process for one, other in (flow.spans for flow in messages))
    starts = [flow for flow in found if flow.kind == "start"]
    assert {flow.spans[1].method for flow in starts} == {
        "run_engine_core", "process_input_sockets", "process_output_sockets", "process_outputs_socket"
    }  # fmt: skip
    requests = [flow for flow in found if flow.kind == "request"]
    assert [flow.name for flow in requests] == ["request 0", "request 1"]
    assert [[span.method for span in flow.spans] for flow in requests] == [
        ["add_request", "llm_request", "step_fn", "step_fn", "step_fn"]
    ] * 2
    assert all(flow.kind == "start" for flow in flows(Chosen(trace, detail="request")) if len(flow.spans) == 2)


def test_a_life_has_phases():
    """A request waits, is in prefill, decode, preempted and in prefill again, without a gap, until its life ends."""
    process = Process(1, "main")
    life = Span("llm_request", "2" * 32, "f" * 16, None, 0, 1000, {names.REQUEST_ID: "a"}, process=process)

    def step(start: int, requests: list[str], phases: list[str], **more: list[str]) -> Span:
        attributes = {names.STEP_INDEX: start, names.STEP_REQUESTS: requests, names.STEP_PHASES: phases}
        attributes |= {getattr(names, name): value for name, value in more.items()}
        link = [Link(life.trace_id, life.span_id, {names.REQUEST_ID: "a"})]
        return Span(
            "EngineCore.step_fn", "1" * 32, f"{start:016x}", None, start, start + 50, attributes, link, process=process
        )

    steps = [
        step(100, ["a"], ["prefill"]),
        step(200, ["a"], ["decode"]),
        step(300, ["a"], ["decode"]),
        step(400, ["b"], ["decode"], STEP_PREEMPTED=["a"]),
        step(500, ["b"], ["decode"]),
        step(600, ["a"], ["prefill"], STEP_RESUMED=["a"]),
        step(700, ["a"], ["decode"]),
        step(1000, ["a"], ["prefill"]),
    ]
    [actual] = request_tracks(Trace([life, *steps]))
    assert actual.name == "request a"
    assert [(phase.name, phase.start_ns, phase.end_ns) for phase in actual.phases] == [
        ("waiting", 0, 100), ("prefill", 100, 200), ("decode", 200, 400),
        ("preempted", 400, 600), ("prefill", 600, 700), ("decode", 700, 1000),
    ]  # fmt: skip
