"""Several processes as one sequence diagram: calls in causal order, none lost."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Golden
from tests.mermaid import ParseMermaid
from tests.report.processes import Clock, Engine, Thread, served, sync_run
from tests.report.test_sequence import arrows, is_within, loops
from tests.report.traces import hello
from tracellm.report.diagram.lanes import Lanes
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.model import Diagram, Item, Loop, check_diagram, messages
from tracellm.report.diagram.sequence import LIMIT, sequence
from tracellm.report.diagram.story import DiagramTree, order_by_cause
from tracellm.report.tree.nodes import Node, call_tree, walk
from tracellm.trace import names
from tracellm.trace.expect import check, read
from tracellm.trace.model import Process, Trace

GOLDEN = Path(__file__).parent / "golden"

IN, OUT = ("EngineCoreProc", "process_input_sockets"), ("EngineCoreProc", "process_output_sockets")


def label(diagram: Diagram, id: str) -> Any:
    """Return a lifeline's name, with its method if it has one."""
    one = next(one for one in diagram.participants if one.id == id)
    return (one.label, one.below) if one.below else one.label


def sent(diagram: Diagram, items: tuple[Item, ...] | None = None) -> list[tuple[Any, Any, str]]:
    """Return sender, receiver and text of each message."""
    return [
        (label(diagram, one.source), label(diagram, one.target), one.text)
        for one in messages(diagram.items if items is None else items)
        if one.kind == "message"
    ]


def ordered(trace: Trace) -> DiagramTree:
    """Return the calls of a trace in causal order."""
    return order_by_cause(DiagramTree(trace, call_tree(trace)))


def spans_of(nodes: list[Node]) -> list[str]:
    """Return the id of every span of these nodes, hidden ones included."""
    return sorted(span.span_id for node in walk(nodes) for span in (*node.spans, *node.hidden))


TRACES = [
    sync_run(),
    sync_run(ahead=True),
    sync_run(prompts=1, tokens=1),
    sync_run(killed=True),
    served(),
    served(3, 1),
    served(1, 2),
]


@pytest.mark.parametrize("name", ["sync", "ahead", "killed", "served"])
def test_the_story_of_two_processes(name: str, golden: Golden, parse_mermaid: ParseMermaid):
    """The diagrams of a SyncMPClient's run, a fast engine core, a killed one and a server equal the golden files."""
    trace = {"sync": sync_run(), "ahead": sync_run(ahead=True), "killed": sync_run(killed=True), "served": served()}
    diagram = sequence(trace[name])
    check_diagram(diagram)
    text = to_mermaid(diagram)
    parse_mermaid(text)
    golden(GOLDEN / f"story.{name}.mmd", text)


@pytest.mark.parametrize("trace", TRACES)
def test_no_call_is_lost_and_no_time(trace: Trace):
    """The story has each span once, and the call tree's sum of own times."""
    before, after = call_tree(trace), ordered(trace).roots
    assert spans_of(before) == spans_of(after)
    assert sum(node.own_ns for node in walk(before)) == sum(node.own_ns for node in walk(after))


@pytest.mark.parametrize("trace", TRACES)
def test_each_thread_keeps_its_order(trace: Trace):
    """Calls of one thread or task keep their order."""
    lanes, last = Lanes(trace), dict[Any, int]()
    for node in walk(ordered(trace).roots):
        if node.spans:
            lane = lanes.of(node.span)
            if not (node.span.lifeline.endswith("MPClient") and "get_output" in node.span.name):
                assert last.get(lane, 0) <= node.span.start_ns, node.span.name
            last[lane] = node.span.start_ns


@pytest.mark.parametrize("trace", TRACES)
def test_no_effect_is_told_before_its_cause(trace: Trace):
    """A receive follows its send, and the client handles outputs after the step that made them."""
    order = {node.span.span_id: i for i, node in enumerate(walk(ordered(trace).roots)) if node.spans}
    adds = [one.send for one in trace.messages if one.send.attributes[names.MESSAGE_TYPE] == "ADD"]
    handled = trace.named("EngineCoreProc._handle_client_request")
    assert len(adds) == len(handled)
    assert all(order[add.span_id] < order[call.span_id] for add, call in zip(adds, handled, strict=True))
    outputs = [one.send for one in trace.messages if one.send.attributes[names.MESSAGE_TYPE] == "OUTPUTS"]
    for step, message, seen in zip(
        trace.named("EngineCore.step_fn"), outputs, trace.named("OutputProcessor.process_outputs"), strict=False
    ):
        assert order[step.span_id] < order[message.span_id] < order[seen.span_id]


def test_what_follows_a_step_is_told_after_it():
    """An abort handled after a step stays after it, even if the client handles the step's outputs later."""
    clock = Clock()
    main = Thread(clock, Process(10, "main"))
    main.begin("hello.py", "request", lifeline="hello.py")
    with main("MPClient.launch_core_engines", "request", lifeline="SyncMPClient"):
        engine = Engine(main)
    outputs = main.beside("process_outputs_socket")
    outputs.begin("SyncMPClient.process_outputs_socket", "request", kind="loop")
    engine.handle("0")
    message = engine.step(["0"], new=True)
    engine.handle("1")
    engine.input.receive("ABORT 0")
    with main("SyncMPClient.get_output"):
        engine.send(message)
        outputs.receive(message)
    engine.end()
    outputs.end()
    main.end()
    trace = Trace(clock.spans)
    order = [node.span.name for node in walk(ordered(trace).roots) if node.spans]
    step = order.index("EngineCore.step_fn")
    assert [i > step for i, name in enumerate(order) if name == "EngineCoreProc._handle_client_request"] == [
        False,
        True,
    ]


def test_one_process_and_one_thread_are_left_as_they_are():
    """The story of an in-process run is its call tree."""
    trace = hello()
    tree = ordered(trace)
    assert tree.story.lanes is None
    assert [node.span.span_id for node in walk(tree.roots)] == [node.span.span_id for node in walk(call_tree(trace))]


def test_a_quick_engine_core_makes_no_other_story():
    """The diagram does not depend on when the engine core begins its next step."""
    slow, quick = (sequence(sync_run(1, 8, ahead=ahead)) for ahead in (False, True))
    rounds = [[one.text for one in loops(diagram.items)] for diagram in (slow, quick)]
    assert rounds[0] == rounds[1] == ["steps 2-7: decode, 1 request (6 times)"]
    in_loop = [arrows(diagram, loops(diagram.items)[0].items) for diagram in (slow, quick)]
    assert in_loop[0] == in_loop[1]


@pytest.mark.parametrize("ahead", [False, True])
def test_outputs_are_those_of_the_step_that_they_name(ahead: bool, tmp_path: Path):
    """A closing step without outputs changes no story, even if it begins before the last outputs are encoded."""
    late, early = (sync_run(2, 5, ahead=ahead, closing=closing) for closing in (False, True))
    stories = [to_mermaid(sequence(trace)) for trace in (late, early)]
    assert stories[0] == stories[1]
    (tmp_path / "sequence.mmd").write_text(stories[0])
    for trace in (late, early):
        assert not check(trace, read(str(tmp_path / "sequence.mmd"))).misses


def test_recordings_of_older_versions_have_their_stories_too():
    """Without a step's index in its message, outputs are assigned to the steps in order."""
    for ahead in (False, True):
        named, unnamed = sync_run(ahead=ahead), sync_run(ahead=ahead)
        for span in unnamed.spans:
            span.attributes.pop(names.MESSAGE_STEP, None)
        assert to_mermaid(sequence(unnamed)) == to_mermaid(sequence(named))


@pytest.mark.parametrize("trace", [sync_run(3, 17), sync_run(ahead=True), served(2, 9), sync_run(40, 6)])
def test_the_boundary_is_never_cut(trace: Trace, parse_mermaid: ParseMermaid):
    """A diagram of sixty arrows has the ADD messages and the first steps' OUTPUTS."""
    diagram = sequence(trace)
    check_diagram(diagram)
    assert len(list(messages(diagram.items))) <= LIMIT
    parsed = parse_mermaid(to_mermaid(diagram))
    assert sum(event["kind"] == "SOLID_POINT" for event in parsed["events"]) == len(sent(diagram))
    kinds = [text.partition(" ")[0] for _, _, text in sent(diagram)]
    assert kinds[0] == "ADD"
    assert kinds.count("OUTPUTS") >= 3
    for source, target, text in sent(diagram):
        if text.startswith("ADD"):
            assert target == IN
        else:
            assert source == OUT
            assert target[1] == "process_outputs_socket"


def test_with_a_limit_of_ten_the_boundary_stands():
    """A limit of ten arrows still leaves messages in the diagram."""
    assert {text.partition(" ")[0] for _, _, text in sent(sequence(sync_run(), limit=10))} == {"ADD", "OUTPUTS"}


def test_the_outputs_of_folded_steps_stand_in_their_loop():
    """Unchanged steps are one loop with the engine core's calls, the message and the client's calls."""
    diagram = sequence(sync_run(3, 17))
    [loop] = [one for one in loops(diagram.items) if one.text.startswith("steps")]
    assert loop.text == "steps 2-16: decode, 3 requests (15 times)"
    assert sent(diagram, loop.items) == [
        (OUT, ("SyncMPClient", "process_outputs_socket"), "OUTPUTS 3 requests (180 B)")
    ]
    assert is_within(
        [
            ("LLM", "LLMEngine", "step"),
            ("LLMEngine", "SyncMPClient", "get_output"),
            ("EngineCoreProc", "EngineCoreProc", "step_fn"),
            ("EngineCoreProc", "Scheduler", "schedule"),
            ("LLMEngine", "OutputProcessor", "process_outputs"),
        ],
        arrows(diagram, loop.items),
    )


def test_the_requests_of_a_server_are_told_as_they_came():
    """With two concurrent chats, each call keeps its position, and one step serves both."""
    diagram = sequence(served(), limit=None)
    calls = arrows(diagram)
    assert is_within(
        [
            ("OpenAIServingChat", "OpenAIServingChat", "create_chat_completion"),
            ("OpenAIServingChat", "AsyncLLM", "generate"),
            ("AsyncLLM", "AsyncLLM", "add_request"),
            ("OpenAIServingChat", "OpenAIServingChat", "create_chat_completion"),
            ("OpenAIServingChat", "AsyncLLM", "generate"),
            ("AsyncLLM", "AsyncLLM", "add_request"),
            ("EngineCoreProc", "EngineCoreProc", "_handle_client_request"),
            ("EngineCoreProc", "EngineCoreProc", "step_fn"),
            ("AsyncLLM", "OutputProcessor", "process_outputs"),
        ],
        calls,
    )
    assert [text for _, _, text in sent(diagram)][:2] == ["ADD chatcmpl-0 (412 B)", "ADD chatcmpl-1 (412 B)"]
    [loop] = [item for item in diagram.items if isinstance(item, Loop) and "steps" in item.text]
    assert loop.text == "steps 2-4: decode, 2 requests (3 times)"
    assert ("AsyncLLM", "OutputProcessor", "process_outputs") in arrows(diagram, loop.items)


def test_many_requests_that_are_alike_are_one_loop():
    """Forty equal chats take as many arrows as two, on both sides."""
    diagram = sequence(served(40, 9))
    assert len(list(messages(diagram.items))) <= LIMIT
    asked, taken_in, steps = [loop for loop in diagram.items if isinstance(loop, Loop)]
    assert asked.text == "39 times"  # the first chat also starts the task that takes the outputs
    assert sent(diagram, asked.items)[0][2] == "ADD chatcmpl-1, chatcmpl-2, chatcmpl-3, … (412 B)"
    assert taken_in.text == "40 times"
    assert arrows(diagram, taken_in.items)[0][2] == "_handle_client_request"
    assert steps.text == "steps 2-8: decode, 40 requests (7 times)"


def test_lifelines_stand_in_the_box_of_their_process_threads_towards_the_other():
    """The client's box comes first; the sending and receiving threads stand where the boxes meet."""
    diagram = sequence(sync_run())
    assert [box.label for box in diagram.boxes] == ["main: front end", "EngineCore_0: engine core"]
    client, engine = ([label(diagram, id) for id in box.participants] for box in diagram.boxes)
    assert client[0] == "hello.py"
    assert client[-1] == ("SyncMPClient", "process_outputs_socket")
    assert engine[:3] == [IN, OUT, "EngineCoreProc"]
    assert is_within(["EngineCoreProc", "Scheduler", "UniProcExecutor", "Worker", "GPUModelRunner"], engine)


def test_what_a_killed_process_had_open_is_marked():
    """Calls without an end are marked."""
    drawn = [one.text for one in messages(sequence(sync_run(killed=True), limit=None).items)]
    assert "step_fn() (not ended)" in drawn
    assert "get_output() (not ended)" in drawn
    assert not any("schedule" in text and "not ended" in text for text in drawn)


def test_a_message_that_nobody_received_goes_to_a_lifeline_that_says_so(parse_mermaid: ParseMermaid):
    """A message without a receive goes to a lifeline for the receiver that was not recorded."""
    whole = sync_run()
    client = Trace([span for span in whole.spans if span.process and span.process.name == "main"], whole.processes[:1])
    diagram = sequence(client)
    check_diagram(diagram)
    parse_mermaid(to_mermaid(diagram))
    assert sent(diagram)[0][1:] == ("receiver (not recorded)", "ADD 0, 1, 2 (300 B)")
    assert [box.label for box in diagram.boxes] == ["main: front end", "not recorded"]


def test_detail_and_focus_work_over_processes(parse_mermaid: ParseMermaid):
    """--detail and --focus keep the boundary's lifelines and each part's caller."""
    for options in ({"detail": "step"}, {"focus": ["Scheduler"]}, {"focus": ["SyncMPClient"]}):
        diagram = sequence(sync_run(), **options)
        check_diagram(diagram)
        parse_mermaid(to_mermaid(diagram))
        for caller, callee, method in arrows(diagram):
            if callee == "Scheduler" and method != "__init__":
                assert caller == "EngineCoreProc"


def test_another_thread_of_one_process_has_a_lifeline(parse_mermaid: ParseMermaid):
    """In one process there are no boxes, and a loop in a thread stands beside its class."""
    clock = Clock()
    main = Thread(clock, Process(1, "main"))
    main.begin("hello.py", "request", lifeline="hello.py")
    with main("Work.start"):
        other = main.beside("worker")
        other.begin("Work.loop", kind="loop")
    for _ in range(2):
        main.leaf("Work.put")
        other.leaf("Job.run")
    other.end()
    main.end()
    diagram = sequence(Trace(clock.spans), limit=None)
    parse_mermaid(to_mermaid(diagram))
    assert diagram.boxes == ()
    assert [label(diagram, one.id) for one in diagram.participants] == ["hello.py", "Work", "Job", ("Work", "loop")]
    assert arrows(diagram) == [
        ("hello.py", "Work", "start"),
        ("Work", "Work", "loop"),
        ("hello.py", "Work", "put"),
        ("Work", "Job", "run"),
    ]
    assert isinstance(diagram.items[-1], Loop)
    assert diagram.items[-1].count == 2


@st.composite
def processes(draw: st.DrawFn) -> Trace:
    """Any calls of several threads in two processes, with some messages."""
    clock = Clock()
    main = Thread(clock, Process(1, "main"))
    main.begin("hello.py", "request", lifeline="hello.py")
    threads = [main]
    sends = 0
    for _ in range(draw(st.integers(0, 40))):
        thread = draw(st.sampled_from(threads))
        match draw(st.sampled_from(["begin", "begin", "end", "leaf", "beside", "send", "receive"])):
            case "begin":
                kind = draw(st.sampled_from([None, None, "loop", "coroutine", "generator"]))
                name = draw(st.sampled_from(["A.f", "B.g", "SyncMPClient.get_output", "LLMEngine.step"]))
                thread.begin(name, kind=kind)
            case "end" if len(thread.stack) > 1:
                thread.end()
            case "leaf":
                facts: dict[str, Any] = {names.STEP_INDEX: sends, names.STEP_KIND: "decode"}
                thread.leaf(draw(st.sampled_from(["A.f", "EngineCore.step_fn"])), **facts)
            case "beside" if len(threads) < 4:
                process = draw(st.sampled_from([Process(1, "main"), Process(2, "EngineCore_0")]))
                threads.append(thread.beside(f"t{len(threads)}", process))
            case "send":
                sends += 1
                thread.send(f"{draw(st.sampled_from(['ADD', 'OUTPUTS']))} {sends}")
            case "receive":
                thread.receive(f"OUTPUTS {draw(st.integers(0, 5))}")
    for thread in threads[1:]:
        while len(thread.stack) > 1:
            thread.end()
    while main.stack:
        main.end()
    return Trace(clock.spans)


@settings(max_examples=60, deadline=None)
@given(trace=processes(), limit=st.integers(1, 12))
def test_any_calls_of_any_threads_make_a_valid_diagram(trace: Trace, limit: int):
    """Any concurrent calls keep their spans and times, balanced activations, and the limit."""
    before, after = call_tree(trace), ordered(trace).roots
    assert spans_of(before) == spans_of(after)
    assert sum(node.own_ns for node in walk(before)) == sum(node.own_ns for node in walk(after))
    for diagram in (sequence(trace, limit=limit), sequence(trace, limit=None), sequence(trace, detail="kernel")):
        check_diagram(diagram)
    assert len(list(messages(sequence(trace, limit=limit).items))) <= limit
