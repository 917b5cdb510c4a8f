"""Sequence diagrams as valid Mermaid: the most important calls in their order."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Golden
from tests.mermaid import ParseMermaid
from tests.report.nasty import NASTY
from tests.report.test_fold import TREES, Tree, trace_of
from tests.report.traces import Calls, generate, hello, start_engine, step, step_facts
from tracellm.report.diagram.lifelines import readable_ids
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.model import Diagram, Item, Loop, Message, Note, check_diagram, messages
from tracellm.report.diagram.sequence import LIMIT, sequence, sequence_diagram
from tracellm.trace import names
from tracellm.trace.model import Process, Trace
from tracellm.trace.names import LEVELS

GOLDEN = Path(__file__).parent / "golden"

CHAIN = [
    ("LLM", "LLMEngine", "step"),
    ("LLMEngine", "InprocClient", "get_output"),
    ("InprocClient", "EngineCore", "step_fn"),
    ("EngineCore", "EngineCore", "_schedule"),
    ("EngineCore", "Scheduler", "schedule"),
    ("EngineCore", "EngineCore", "_execute_model"),
    ("EngineCore", "UniProcExecutor", "execute_model"),
    ("UniProcExecutor", "Worker", "execute_model"),
    ("Worker", "GPUModelRunner", "execute_model"),
    ("GPUModelRunner", "Qwen2ForCausalLM", "forward"),
    ("GPUModelRunner", "Sampler", "forward"),
    ("EngineCore", "EngineCore", "_process_model_outputs"),
    ("EngineCore", "Scheduler", "update_from_output"),
]
"""Calls that make one token: caller, callee, method."""


def arrows(diagram: Diagram, items: tuple[Item, ...] | None = None) -> list[tuple[str, str, str]]:
    """Return caller, callee and method of each call."""
    labels = {one.id: one.label for one in diagram.participants}
    return [
        (labels[one.source], labels[one.target], one.text.partition("(")[0])
        for one in messages(diagram.items if items is None else items)
        if one.kind == "call"
    ]


def is_within(part: list[Any], whole: list[Any]) -> bool:
    """Return whether `part` is a subsequence of `whole`."""
    rest = iter(whole)
    return all(one in rest for one in part)


def loops(items: tuple[Item, ...]) -> list[Loop]:
    """Return all loops, outer ones first."""
    found = [item for item in items if isinstance(item, Loop)]
    return found + [inner for loop in found for inner in loops(loop.items)]


def run_of_many_steps(num_steps: int = 80) -> Trace:
    """Return a run with a change in every step."""
    calls = Calls()
    with calls("hello.py", "request", lifeline="hello.py"):
        start_engine(calls)
        with calls(
            "LLM.generate", "request", phase="generation", line=(5, "llm.generate(prompts)"), result="list of 40"
        ):
            for index in range(1, num_steps + 1):
                ids = [str(index + i) for i in range(index % 7 + 1)]
                step(calls, index, ids, new=index % 2 == 1, last=index % 3 == 0)
    return calls.trace()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_small_run(lang: str, golden: Golden, parse_mermaid: ParseMermaid):
    """The diagram of a plain run equals the golden file."""
    text = sequence_diagram(hello(tokens=17), lang=lang)
    parse_mermaid(text)
    golden(GOLDEN / f"hello.{lang}.mmd", text)


@pytest.mark.parametrize("trace", [hello(tokens=17), hello(prompts=5, tokens=3), run_of_many_steps()])
def test_at_most_sixty_arrows_with_the_whole_chain(trace: Trace):
    """Any run has at most sixty arrows, with the first prefill and decode step from LLM to sampler and back."""
    diagram = sequence(trace)
    check_diagram(diagram)
    assert len(list(messages(diagram.items))) <= LIMIT
    calls = arrows(diagram)
    assert ("hello.py", "LLM", "generate") in calls
    assert is_within(CHAIN * 2, calls)


def test_alike_steps_stand_in_a_loop_and_changes_apart():
    """Unchanged steps are one loop with numbers and count; each change has a note."""
    diagram = sequence(hello(tokens=17))
    [loop] = [loop for loop in loops(diagram.items) if loop.count == 15]
    assert loop.text == "steps 2-16: decode, 2 requests (15 times)"
    assert is_within(CHAIN, arrows(diagram, loop.items))
    notes = [item.text for item in diagram.items if isinstance(item, Note) and not item.phase]
    assert notes[0].startswith("step 1: prefill, 2 requests, 14 tokens, requests 0, 1 joined")
    assert notes[1].startswith("step 17: decode, 2 requests, 2 tokens, requests 0, 1 finished: length")


def test_each_phase_has_a_heading_over_all_lifelines():
    """Start-up and generation have a note across all lifelines."""
    diagram = sequence(hello())
    first, last = diagram.participants[0].id, diagram.participants[-1].id
    phases = [item for item in diagram.items if isinstance(item, Note) and item.phase]
    assert [(item.text, item.first, item.last) for item in phases] == [
        ("Start-up", first, last),
        ("Generation", first, last),
    ]


def test_lifelines_stand_as_a_step_goes_through_them():
    """The script's lifeline is first, then the classes of a step; others stand right of their callers."""
    labels = [one.label for one in sequence(hello()).participants]
    assert len(set(labels)) == len(labels)
    assert is_within(
        [
            "hello.py",
            "LLM",
            "Processor",
            "LLMEngine",
            "EngineCoreClient",
            "InprocClient",
            "EngineCore",
            "Scheduler",
            "UniProcExecutor",
            "Worker",
            "GPUModelRunner",
            "Qwen2ForCausalLM",
            "Sampler",
            "OutputProcessor",
        ],
        labels,
    )


@pytest.mark.parametrize(
    "name", ["end", "Loop", "participant", "as", "Lifestyle", "xray", "结束", "P2", "9", "_", "a b;c"]
)
def test_lifelines_are_called_by_name_where_mermaid_allows_it(name: str, parse_mermaid: ParseMermaid):
    """A lifeline's id is its name, unless the name is Mermaid syntax."""
    ids = readable_ids(["hello.py", "LLM", name, "LLM", "hello_py"])
    assert ids[:2] == ["hello_py", "LLM"]
    assert len(set(ids)) == 5
    calls = "".join(f"    LLM->>+{id}: f()\n    {id}--x-LLM: failed\n" for id in ids)
    parse_mermaid("sequenceDiagram\n" + calls)


def test_requests_that_are_added_alike_are_a_loop():
    """Ten equal prompts take as many arrows as two, and each prompt's calls stay together."""
    diagram = sequence(hello(prompts=10))
    [loop] = [
        loop
        for loop in loops(diagram.items)
        if ("InprocClient", "EngineCore", "add_request") in arrows(diagram, loop.items)
    ]
    assert loop.text == "10 times"
    assert is_within(
        [
            ("LLM", "Processor", "process_inputs"),
            ("LLM", "LLMEngine", "add_request"),
            ("EngineCore", "Scheduler", "add_request"),
        ],
        arrows(diagram, loop.items),
    )


def test_time_plays_no_part():
    """Two runs with the same calls have the same diagram, whatever the times."""
    slow = hello(tokens=5)
    for span in slow.spans:
        span.start_ns, span.end_ns = span.start_ns * 1000 + 7, span.end_ns * 1000 + 11
    assert sequence_diagram(slow) == sequence_diagram(hello(tokens=5))


def test_a_failing_call_ends_in_a_cross(golden: Golden, parse_mermaid: ParseMermaid):
    """An exception is drawn from the raising call up to the script, with a note there."""
    trace = hello(tokens=6, fails_at=4)
    diagram = sequence(trace)
    check_diagram(diagram)
    crosses = [one for one in messages(diagram.items) if one.kind == "error"]
    labels = {one.id: one.label for one in diagram.participants}
    assert crosses[0].text.startswith("RuntimeError: out of memory")
    assert all(one.text == "RuntimeError" for one in crosses[1:])
    assert (labels[crosses[-1].source], labels[crosses[-1].target]) == ("LLM", "hello.py")
    assert any(isinstance(item, Note) and item.text.startswith("RuntimeError") for item in diagram.items)
    assert len(list(messages(diagram.items))) <= LIMIT
    text = to_mermaid(diagram)
    assert "--x" in text
    parse_mermaid(text)
    golden(GOLDEN / "failed.mmd", text)


@pytest.mark.parametrize("level", LEVELS)
def test_detail_draws_every_call_down_to_a_level(level: str, parse_mermaid: ParseMermaid):
    """With --detail, all methods of that level or a coarser one are drawn, without a limit."""
    trace = hello(tokens=4)
    diagram = sequence(trace, detail=level)  # type: ignore[arg-type]
    check_diagram(diagram)
    parse_mermaid(to_mermaid(diagram))
    wanted = {
        (span.lifeline, span.method)
        for span in trace.spans
        if LEVELS.index(span.level) <= LEVELS.index(level) and span.name != "hello.py"
    }
    assert {(callee, method) for _, callee, method in arrows(diagram)} == wanted


def test_detail_draws_steps_with_the_same_calls_once():
    """With --detail, calls of a step are drawn only if they differ from earlier steps."""
    diagram = sequence(run_of_many_steps(), detail="kernel")
    check_diagram(diagram)
    calls = arrows(diagram)
    assert calls.count(("LLM", "LLMEngine", "step")) == 80
    assert calls.count(("EngineCore", "Scheduler", "schedule")) < 10
    assert "more calls are not drawn" in diagram.remark


def test_focus_draws_only_what_goes_into_or_out_of_a_class(parse_mermaid: ParseMermaid):
    """With --focus, all calls of and by a class are drawn, with the path from the script."""
    trace = hello(tokens=4)
    diagram = sequence(trace, focus=["Scheduler"])
    check_diagram(diagram)
    parse_mermaid(to_mermaid(diagram))
    calls = set(arrows(diagram))
    into_or_out = {call for call in calls if "Scheduler" in call[:2]}
    assert into_or_out == {
        ("EngineCore", "Scheduler", "__init__"),
        ("Scheduler", "KVCacheManager", "__init__"),
        ("EngineCore", "Scheduler", "add_request"),
        ("EngineCore", "Scheduler", "schedule"),
        ("Scheduler", "KVCacheManager", "get_computed_blocks"),
        ("Scheduler", "KVCacheManager", "allocate_slots"),
        ("EngineCore", "Scheduler", "update_from_output"),
    }
    assert ("hello.py", "LLM", "generate") in calls
    assert "Sampler" not in {one.label for one in diagram.participants}


def test_an_unknown_focus_is_refused_with_what_there_is():
    """An unknown focus is refused with the most similar lifelines."""
    with pytest.raises(ValueError, match=r"'Schduler'.*Scheduler"):
        sequence(hello(), focus=["Schduler"])


def test_an_unknown_level_is_refused_with_what_there_is():
    """An unknown level is refused with the known ones."""
    with pytest.raises(ValueError, match=r"'deep'.*request, step, layer, kernel"):
        sequence(hello(), detail="deep")  # type: ignore[arg-type]


def test_a_smaller_limit_keeps_the_most_telling():
    """With a small limit, the calls that make a token are drawn first."""
    diagram = sequence(hello(tokens=17), limit=16)
    check_diagram(diagram)
    assert len(list(messages(diagram.items))) == 16
    assert is_within(CHAIN, arrows(diagram))


def test_the_users_own_functions_are_drawn(parse_mermaid: ParseMermaid):
    """A probed user function has its arrow, with its callees below."""
    calls = Calls()
    with calls("hello.py", "request", lifeline="hello.py"):
        start_engine(calls)
        with calls("ask", "request", lifeline="hello.py", args=["question='Why?'"], line=(20, "ask('Why?')")):
            generate(calls, 1, 3, line=(9, "return llm.generate(question)"))
    diagram = sequence(calls.trace())
    check_diagram(diagram)
    parse_mermaid(to_mermaid(diagram))
    assert is_within([("hello.py", "hello.py", "ask"), ("hello.py", "LLM", "generate"), *CHAIN], arrows(diagram))


def test_a_function_of_the_users_that_fails_is_drawn_to_its_end():
    """An exception is drawn from the raising call through the user's function to the script."""
    calls = Calls()
    with contextlib.suppress(RuntimeError), calls("hello.py", "request", lifeline="hello.py"):
        start_engine(calls)
        with calls("ask", "request", lifeline="hello.py") as span:
            span.attributes[names.CODE_FUNCTION] = "__main__.ask"
            generate(calls, 1, 3, line=(9, "return llm.generate(question)"), fails_at=2)
    diagram = sequence(calls.trace())
    labels = {one.id: one.label for one in diagram.participants}
    crosses = [(labels[one.source], labels[one.target]) for one in messages(diagram.items) if one.kind == "error"]
    assert crosses[0][0] == "Qwen2Model"
    assert crosses[-2:] == [("LLM", "hello.py"), ("hello.py", "hello.py")]


def test_a_generation_in_a_loop_is_drawn_once(parse_mermaid: ParseMermaid):
    """A line that generates ten times is one loop with all its steps."""
    calls, next_step = Calls(), 1
    with calls("hello.py", "request", lifeline="hello.py"):
        start_engine(calls)
        for number in range(10):
            next_step = generate(calls, 1, 5, first_step=next_step, first_request=number)
    diagram = sequence(calls.trace())
    check_diagram(diagram)
    parse_mermaid(to_mermaid(diagram))
    [loop] = [item for item in diagram.items if isinstance(item, Loop)]
    assert loop.text == "10 times"
    assert is_within([("hello.py", "LLM", "generate"), *CHAIN, *CHAIN], arrows(diagram, loop.items))


def test_processes_are_boxes(parse_mermaid: ParseMermaid):
    """Lifelines of a process stand in its box, even if another process has the same class."""
    main, core = Calls(process=Process(10, "main")), Calls(process=Process(11, "EngineCore_0"), start_ns=500)
    with main("hello.py", "request", lifeline="hello.py"):
        main.leaf("SyncMPClient.get_output")
        main.leaf("Helper.encode")
    with core("EngineCoreProc.run_busy_loop"):
        core.leaf("Helper.decode")
    diagram = sequence(Trace([*main.spans, *core.spans], [main.process, core.process]))
    check_diagram(diagram)
    labels = {one.id: one.label for one in diagram.participants}
    assert [(box.label, [labels[id] for id in box.participants]) for box in diagram.boxes] == [
        ("main: front end", ["hello.py", "SyncMPClient", "Helper"]),
        ("EngineCore_0: engine core", ["EngineCore_0", "EngineCoreProc", "Helper"]),
    ]
    parse_mermaid(to_mermaid(diagram))


def test_an_empty_trace_says_so(parse_mermaid: ParseMermaid):
    """An empty trace gives a valid diagram with a note."""
    assert "No call was recorded." in sequence_diagram(Trace([]))
    parse_mermaid(sequence_diagram(Trace([])))


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_hostile_values_stay_text(text: str, parse_mermaid: ParseMermaid):
    """Hostile names, arguments, results and exceptions leave the diagram's structure unchanged."""
    calls = Calls(process=Process(1, text))
    other = Calls(process=Process(2, text))
    with (
        pytest.raises(ValueError, match=r"^"),
        calls(text or "x", "request", lifeline=text),
        calls(f"A.{text}", lifeline=text, args=[f"prompt={text}"], result=text, line=(1, text)),
        calls("EngineCore.step_fn", **_step_of(text)),
    ):
        raise ValueError(text)
    other.leaf("A.b", lifeline=text)
    diagram = sequence(Trace([*calls.spans, *other.spans], [calls.process, other.process]))
    check_diagram(diagram)
    parsed = parse_mermaid(to_mermaid(diagram))
    drawn = [event for event in parsed["events"] if event["kind"] in ("SOLID", "DOTTED", "DOTTED_CROSS")]
    assert len(drawn) == len(list(messages(diagram.items)))
    assert [one["label"] for one in parsed["participants"]] == [one.label for one in diagram.participants]


def _step_of(request: str) -> dict[str, Any]:
    facts = {names.STEP_REQUESTS: [request], names.STEP_NEW: [request], names.STEP_KIND: request}
    return step_facts(1, [request]) | facts


def _kept(trees: list[Tree], **options: Any) -> Diagram:
    diagram = sequence(trace_of(*trees), **options)
    check_diagram(diagram)
    return diagram


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees=st.lists(TREES, min_size=1, max_size=4), limit=st.integers(1, 12))
def test_any_calls_make_a_valid_diagram(trees: list[Tree], limit: int, parse_mermaid: ParseMermaid):
    """Any calls give a valid diagram with balanced activations within the limit; without it all are drawn."""
    limited, whole = _kept(trees, limit=limit), _kept(trees, limit=None)
    assert len(list(messages(limited.items))) <= limit
    parse_mermaid(to_mermaid(limited))
    parse_mermaid(to_mermaid(whole))
    drawn = {id for one in messages(whole.items) if isinstance(one, Message) for id in one.spans}
    assert len(drawn) == sum(map(_size, trees))


def _size(tree: Tree) -> int:
    return 1 + sum(map(_size, tree[1]))
