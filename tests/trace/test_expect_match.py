"""Matching a run with an expectation: the calls found in order, and the reasons for the rest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.report import processes
from tests.report.traces import Calls, hello
from tests.trace.machines import Recorder
from tests.trace.server_run import MODEL, served
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.trace import names
from tracellm.trace.expect import Expectation, Result, check, read
from tracellm.trace.expect.match import _in_turn, _most
from tracellm.trace.merge import merge
from tracellm.trace.model import Span, Trace

SEED = Path(__file__).parents[2] / "docs" / "expectations" / "vllm-v1-serve.tsv"

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


@pytest.fixture(scope="module")
def run() -> Trace:
    """A served chat request with one token, its two processes on one clock."""
    trace = served(tokens=1).trace()
    merge(trace.processes, trace.spans)
    return Trace(trace.spans, trace.processes)


@pytest.fixture(scope="module")
def seed() -> Expectation:
    """The document's calls, without those for multimodal input."""
    expectation = read(str(SEED))
    expectation.arrows = [arrow for arrow in expectation.arrows if not arrow.needs]
    return expectation


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Expectation:
    """The document's diagram in reStructuredText, with its mistakes, an alias and headings."""
    aliases = {"Model": "XXXXModel", "Worker": "Worker(gpu_worker)", "BaseMultiModalProcessor": "QwenXXXProcessor"}
    lines = ["participant QwenXXXProcessor as XXXMultiModalProcessor<br/>BaseMultiModalProcessor"]
    phase = ""
    rows = [line.split("\t") for line in SEED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    for row in rows[1:]:
        if row[0] != phase:
            phase = row[0]
            heading = {"startup": "启动流程", "generate": "生成阶段 #分割线"}[phase]
            lines.append(f"Note over api_server.py,XXXXModel: {heading}")
        source, target = (aliases.get(name, name) for name in row[1:3])
        lines.append(f"{source}->>+{target}: {row[3]}")
    text = "\n".join(f"        {line}" for line in lines)
    file = tmp_path_factory.mktemp("document") / "document.rst"
    file.write_text(f"V1\n--\n\n.. mermaid::\n\n    sequenceDiagram\n{text}\n", encoding="utf-8")
    return read(str(file))


def expected(tmp_path: Path, *arrows: str) -> Expectation:
    """Return the expectation of a diagram with these arrows, `A->>B: f`."""
    (tmp_path / "e.mmd").write_text("\n".join(["sequenceDiagram", *arrows]), encoding="utf-8")
    return read(str(tmp_path / "e.mmd"))


def missed(result: Result) -> list[str]:
    """Return the texts of the calls that were not found."""
    return [miss.arrow.text for miss in result.misses]


# -- the document's diagram -------------------------------------------------------------------------------------------


def test_the_documents_calls(run: Trace):
    """The run has all 59 calls of the table; those for multimodal input are counted apart."""
    result = check(run, read(str(SEED)))
    assert (result.matched, result.total, result.needs, result.unknown) == (59, 59, {"mm": 8}, {})


@pytest.mark.parametrize(("phase", "count"), [("startup", 25), ("generate", 34)])
def test_a_phase_of_them(run: Trace, document: Expectation, phase: str, count: int):
    """One phase of a table or a diagram can be selected."""
    result = check(run, read(str(SEED)), phase)
    assert (result.matched, result.total) == (count, count)
    assert check(run, document, phase).total == (25 if phase == "startup" else 42)


def test_the_documents_own_slips_are_found(run: Trace, document: Expectation):
    """The diagram's eight multimodal calls and four mistakes are missing, the mistakes with suggestions."""
    result = check(run, document)
    assert (result.matched, result.total) == (55, 67)
    near = {miss.arrow.names[0]: miss.near[:1] for miss in result.misses}
    assert near["make_sync_mp_client"] == ("make_async_mp_client",)
    assert near["_run_output_hanlder"] == ("_run_output_handler",)
    assert near["process_output_sockets_ThreadLoop"] == ("process_output_sockets",)
    assert result.unknown == {"QwenXXXProcessor": ()}


def test_swapped_calls_are_out_of_order(run: Trace, seed: Expectation):
    """If two neighbours are swapped, one of them is out of order, with its actual position."""
    for i in range(len(seed.arrows) - 1):
        arrows = list(seed.arrows)
        arrows[i : i + 2] = arrows[i + 1], arrows[i]
        result = check(run, replace(seed, arrows=arrows))
        assert result.matched == 58, arrows[i]
        [miss] = result.misses
        assert miss.arrow in arrows[i : i + 2]
        assert miss.elsewhere
        assert miss.others == ()


@pytest.mark.parametrize("end", ["source", "target"])
def test_another_lifeline_is_not_found(run: Trace, seed: Expectation, end: str):
    """A call with another caller or callee of the table is missing."""
    for i, arrow in enumerate(seed.arrows):
        others = sorted(set(seed.lifelines.values()) - {getattr(arrow, end)}, key=sorted)
        for other in others[i % 6 :: 6]:
            changed: dict[str, Any] = {end: other}
            arrows = [*seed.arrows[:i], replace(arrow, **changed), *seed.arrows[i + 1 :]]
            result = check(run, replace(seed, arrows=arrows))
            if arrows[i].text == "AsyncLLM → Processor: __init__" and other == frozenset({"AsyncLLM"}):
                assert result.matched == 59  # AsyncLLM has an __init__ too
            else:
                assert result.matched == 58, arrows[i]


def test_a_call_that_did_not_happen_is_missing(seed: Expectation):
    """A call removed from the run is the missing one."""
    whole = served(tokens=1).trace()
    merge(whole.processes, whole.spans)
    spans = Trace(whole.spans, whole.processes).spans
    for name, count in {
        "Scheduler._update_after_schedule": 1,
        "GPUModelRunner._prepare_inputs": 1,
        "AsyncLLM.generate": 1,
    }.items():
        left = [span for span in spans if span.name != name]
        result = check(Trace(left, whole.processes), seed)
        assert [miss.arrow.names[0] for miss in result.misses][:count] == [name.rpartition(".")[2]]
        assert result.misses[0].elsewhere == ()
        assert result.misses[0].before is not None
        assert result.misses[0].before[0] == seed.arrows[seed.arrows.index(result.misses[0].arrow) - 1]


# -- callers ---------------------------------------------------------------------------------------------------------


def test_lifelines_that_are_not_drawn_are_seen_through(run: Trace, tmp_path: Path):
    """Without the lifelines in between, the nearest drawn one is the caller."""
    assert check(run, expected(tmp_path, f"UniProcExecutor->>{MODEL}: forward")).matched == 1
    far = expected(tmp_path, "participant Worker", f"UniProcExecutor->>{MODEL}: forward")
    assert missed(check(run, far)) == [f"UniProcExecutor->>{MODEL}: forward"]


def test_calls_that_are_not_drawn_may_be_seen_through(run: Trace, tmp_path: Path):
    """In our own diagrams, an omitted call's callees count as called by its caller."""
    left_out = expected(
        tmp_path,
        "EngineCoreProc->>UniProcExecutor: execute_model",
        f"UniProcExecutor->>{MODEL}: forward",
        "GPUModelRunner->>GPUModelRunner: _prepare_inputs",
    )
    assert missed(check(run, left_out)) == ["GPUModelRunner->>GPUModelRunner: _prepare_inputs"]  # it came before


def test_an_outermost_call_is_its_own_lifelines(tmp_path: Path):
    """The first function of a process counts as called by itself, or by the process."""
    calls = Calls()
    calls.leaf("A.f")
    assert check(calls.trace(), expected(tmp_path, "A->>A: f")).matched == 1
    assert check(calls.trace(), expected(tmp_path, "main->>A: f")).matched == 1
    assert check(calls.trace(), expected(tmp_path, "B->>A: f")).matched == 0


def test_the_model_stands_for_its_class(run: Trace, tmp_path: Path):
    """`Model` and `XXXXModel` match the loaded model's class only."""
    for name in ("Model", "XXXXModel", MODEL):
        assert check(run, expected(tmp_path, f"GPUModelRunner->>{name}: forward")).matched == 1
    for name in ("XYModel", "LlamaForCausalLM"):
        assert check(run, expected(tmp_path, f"GPUModelRunner->>{name}: forward")).matched == 0


def test_the_class_that_defines_a_method(run: Trace, tmp_path: Path):
    """A qualified name matches the defining class; an unqualified name matches any."""
    twice = ["AsyncMPClient->>AsyncMPClient: MPClient.__init__"] * 2
    assert check(run, expected(tmp_path, *twice[:1])).matched == 1
    assert check(run, expected(tmp_path, *twice)).matched == 1
    own = "AsyncMPClient->>AsyncMPClient: AsyncMPClient.__init__"
    assert check(run, expected(tmp_path, "participant EngineCoreClient", own)).matched == 0
    outer = "EngineCoreClient->>AsyncMPClient: AsyncMPClient.__init__"
    assert check(run, expected(tmp_path, "participant AsyncLLM", outer, *twice[:1])).matched == 2
    inherited = "AsyncMPClient->>AsyncMPClient: AsyncMPClient.launch_core_engines"
    assert check(run, expected(tmp_path, inherited)).matched == 1  # no class overrides it, so its own name matches too
    assert check(run, expected(tmp_path, inherited.replace(": Async", ": Sync"))).matched == 0


def test_what_a_lifeline_holds(run: Trace, tmp_path: Path):
    """`waiting.add_request` matches a call on an attribute of the scheduler."""
    held = "Scheduler->>Scheduler: self.waiting.add_request(request)"
    assert check(run, expected(tmp_path, held)).matched == 1
    drawn = ["participant EngineCoreProc", "participant FCFSRequestQueue"]
    assert check(run, expected(tmp_path, drawn[0], held)).matched == 1
    assert check(run, expected(tmp_path, *drawn, held)).matched == 0
    assert check(run, expected(tmp_path, drawn[0], "Scheduler->>Scheduler: add_request")).matched == 0


def test_a_second_name_counts(run: Trace, tmp_path: Path):
    """`step_fn` matches vLLM's `step`."""
    for name in ("step", "step_fn"):
        assert check(run, expected(tmp_path, f"EngineCoreProc->>EngineCoreProc: {name}")).matched == 1


def test_a_loop_begins_again_with_each_turn(tmp_path: Path):
    """A loop may begin again before each of its calls, and so may a loop around it."""
    recorder = Recorder(1)
    loop: dict[str, Any] = {names.CALL_KIND: "loop"}
    busy = recorder.call("A.busy", 0, 1000, None, "", **loop)
    queue = recorder.call("A.queue", 1, 900, busy, "", **loop)
    turn = recorder.call("A.f", 100, 110, queue)
    recorder.call("A.g", 105, 106, turn)
    recorder.call("A.f", 200, 210, queue)
    trace = Trace(recorder.spans, [recorder.process])
    once = ["A->>A: busy", "A->>A: queue", "A->>A: f"]
    assert check(trace, expected(tmp_path, *once, *once)).misses == ()
    assert missed(check(trace, expected(tmp_path, *once, *once, *once))) == once[2:]
    assert check(trace, expected(tmp_path, "A->>A: f", "A->>A: busy", "A->>A: g")).matched == 2


def test_messages_between_processes(run: Trace, tmp_path: Path):
    """An asynchronous arrow with a message's type matches that message between its two lifelines."""
    out = "AsyncMPClient-)EngineCoreProc: ADD, 312 bytes"
    assert check(run, expected(tmp_path, "AsyncMPClient->>AsyncMPClient: _send_input", out)).matched == 2
    assert check(run, expected(tmp_path, "EngineCoreProc-)AsyncMPClient: ADD")).matched == 0
    assert check(run, expected(tmp_path, "participant AsyncMPClient", "EngineCoreProc-)AsyncLLM: ADD")).matched == 0


def test_a_request_is_no_call(tmp_path: Path):
    """A request's span is no call, and hides no caller."""
    calls = Calls()
    with calls("A.f"), calls(names.REQUEST_SPAN, lifeline=names.REQUEST_SPAN):
        calls.leaf("B.g")
    life = f"A->>{names.REQUEST_SPAN}: {names.REQUEST_SPAN}"
    assert missed(check(calls.trace(), expected(tmp_path, life, "A->>B: g"))) == [life, "A->>B: g"][:1]


# -- reasons for missing calls ---------------------------------------------------------------------------------------


def small() -> Trace:
    """Four calls: A.f, B.g by A.f, B.h, A.f again."""
    calls = Calls()
    with calls("main.py", lifeline="main.py"):
        with calls("A.f"):
            calls.leaf("B.g")
        calls.leaf("B.h")
        calls.leaf("A.f")
    return calls.trace()


def test_why_a_call_is_missing(tmp_path: Path):
    """A missing call has its reason (out of order, another caller, never), suggestions, and its neighbours."""
    out_of_order, by_another, never = (
        check(small(), expected(tmp_path, "main.py->>B: h", arrow, "main.py->>A: f")).misses[0]
        for arrow in ("A->>B: g", "main.py->>B: g", "A->>B: gg")
    )
    assert [call.span.name for call in out_of_order.elsewhere] == ["B.g"]
    assert out_of_order.before is not None
    assert out_of_order.before[1].span.name == "B.h"
    assert out_of_order.after is not None
    assert out_of_order.after[1].span.start_ns == small().spans[-1].start_ns
    assert [call.callers for call in by_another.others] == [frozenset({"A"})]
    assert (never.elsewhere, never.others, never.near) == ((), (), ("g",))


def test_unknown_lifelines_are_named(tmp_path: Path):
    """A lifeline that the run lacks is reported with suggestions; one that is only declared is not."""
    result = check(small(), expected(tmp_path, "participant Nobody", "main.py->>A: f", "Xyz->>Uvw: g", "main->>B: h"))
    assert result.unknown == {"Xyz": (), "Uvw": ()}
    assert check(hello(), expected(tmp_path, "EngineCore->>Schedular: schedule")).unknown == {
        "Schedular": ("Scheduler",)
    }


def test_the_rest_is_counted_beyond_the_first_miss(tmp_path: Path):
    """One extra call, early or late, does not make others missing."""
    calls = Calls()
    for name in "abcdez":
        calls.leaf(f"A.{name}")
    arrows = [f"A->>A: {name}" for name in "zabcde"]
    result = check(calls.trace(), expected(tmp_path, *arrows))
    assert (result.matched, missed(result)) == (5, ["A->>A: z"])


# -- the search itself ------------------------------------------------------------------------------------------------


@patient
@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_the_most_that_can_be_found(wanted: list[str], recorded: list[str]):
    """The number of matches is the longest common subsequence; the fast path finds all if and only if that does."""
    places = [[i for i, name in enumerate(recorded) if name == one] for one in wanted]
    found = _most(places)
    assert [wanted[i] for i in sorted(found)] == [recorded[found[i]] for i in sorted(found)]
    assert sorted(found.values()) == [found[i] for i in sorted(found)]
    assert len(set(found.values())) == len(found)
    assert len(found) == _longest(wanted, recorded)
    assert (len(_in_turn(places)) == len(wanted)) is (len(found) == len(wanted))


def _longest(wanted: Sequence[str], recorded: Sequence[str]) -> int:
    for length in range(len(wanted), 0, -1):
        for chosen in combinations(wanted, length):
            rest = iter(recorded)
            if all(name in rest for name in chosen):
                return length
    return 0


def test_many_calls(tmp_path: Path):
    """The count is right for thirty thousand calls and three hundred arrows, some of them wrong."""
    spans = [Span(f"A.{'fg'[i % 2]}", "1" * 32, f"{i:016x}", None, i, i, {names.LIFELINE: "A"}) for i in range(30_000)]
    arrows = ["A->>A: f", "A->>A: g", "A->>A: nope"] * 100
    assert check(Trace(spans), expected(tmp_path, *arrows)).matched == 200


# -- our own diagrams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("how", [{}, {"detail": "layer"}, {"focus": ["Scheduler"]}, {"limit": 20}])
@pytest.mark.parametrize("what", [{}, {"prompts": 3, "tokens": 20}, {"fails_at": 3}, {"text": '<b>;#"→'}])
def test_a_run_passes_its_own_diagram(tmp_path: Path, lang: str, how: dict[str, Any], what: dict[str, Any]):
    """A run passes its own diagram in every form, and a run with fewer calls does not."""
    trace = hello(**what)
    (tmp_path / "sequence.mmd").write_text(sequence_diagram(trace, lang=lang, **how), encoding="utf-8")
    own = read(str(tmp_path / "sequence.mmd"))
    result = check(trace, own)
    assert (result.misses, result.unknown) == ((), {})
    assert result.total >= 17
    less = [span for span in trace.spans if span.method != "schedule"]
    assert {miss.arrow.names[0] for miss in check(Trace(less), own).misses} >= {"schedule"} & {
        arrow.names[0] for arrow in own.arrows
    }


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("recorded", [processes.sync_run, processes.served])
def test_a_run_of_two_processes_passes_its_own_diagram(tmp_path: Path, recorded: Callable[[], Trace], lang: str):
    """A run of two processes passes its own diagram, with messages, loops, threads and the HTTP client."""
    trace = recorded()
    (tmp_path / "sequence.mmd").write_text(sequence_diagram(trace, lang=lang), encoding="utf-8")
    result = check(trace, read(str(tmp_path / "sequence.mmd")))
    assert (missed(result), result.unknown) == ([], {})


def test_a_diagram_that_leaves_calls_out_says_so(run: Trace, tmp_path: Path):
    """Only in our own diagrams of a whole run may any outer call be the caller."""
    arrows = [f"Worker->>{MODEL}: forward", f"GPUModelRunner->>{MODEL}: compute_logits"]
    remark = "    %% 7 more calls are not drawn; `tracellm show RUN sequence` draws them with --detail LEVEL"
    assert missed(check(run, expected(tmp_path, *arrows))) == arrows[:1]
    assert missed(check(run, expected(tmp_path, remark, *arrows))) == []
    assert missed(check(run, expected(tmp_path, remark, *arrows[::-1]))) == arrows[:1]


# -- order by chance -------------------------------------------------------------------------------------------------


def side_by_side() -> Trace:
    """Two processes, one started by the other, that run concurrently until one sends a message."""
    main, engine = Recorder(1), Recorder(2)
    with_engine = main.call("A.launch", 0, 100)
    engine.call("B.start", 10, 50, with_engine)
    main.call("A.next", 110, 120)
    main.send("ADD 0", 130, 140, main.call("A.send", 125, 150))
    main.call("A.last", 160, 170)
    engine.call("B.next", 200, 210)
    took = engine.call("B.take", 220, 260)
    engine.receive("ADD 0", 230, 240, took)
    engine.call("B.last", 250, 255)
    processes, spans = [main.process, engine.process], [*main.spans, *engine.spans]
    return Trace(spans, processes)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("launch start next send Next last Last", 7),  # the recorded order
        ("launch start Next next send last Last", 7),  # the other process may run first
        ("launch start Next next send Last last", 7),
        ("launch next start", 2),  # the start was awaited
        ("start launch", 1),  # and cannot come before its start
        ("launch start Last send", 3),  # the message precedes its receive
        ("launch start send next", 3),  # order within a process is fixed
        ("launch start Last Next", 3),
    ],
)
@pytest.mark.parametrize(("pid", "host"), [(2, "here"), (1, "there")])
def test_between_processes_only_causes_count(tmp_path: Path, wanted: str, found: int, pid: int, host: str):
    """Calls of two processes match in either order, unless one causes the other; on two machines pids may be equal."""
    trace = side_by_side()
    engine = trace.processes[1]
    engine.pid = pid
    engine.attributes[names.HOST_NAME] = host
    arrows = [
        "B->>B: " + name.lower() if name[0].isupper() else "A->>B: start" if name == "start" else f"A->>A: {name}"
        for name in wanted.split()
    ]
    assert check(trace, expected(tmp_path, "participant A", "participant B", *arrows)).matched == found


# -- the script, and the score ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hello", "hello.py", "User", "user", "Script", "Your script", "用户", "脚本"])
def test_the_scripts_lifeline_has_several_names(tmp_path: Path, name: str):
    """`User` and `Script` are the script, as is its file name with or without the ending."""
    wanted = expected(tmp_path, f"participant {name}", f"{name}->>LLM: generate", "LLM->>LLMEngine: step")
    assert check(hello(), wanted).matched == 2
    aliased = expected(tmp_path, f"actor U as {name}", "U->>LLM: generate")
    assert check(hello(), aliased).matched == 1


def test_a_script_is_no_other_lifeline(tmp_path: Path):
    """`User` matches only the script's calls, and a recorded class `User` only itself."""
    result = check(hello(), expected(tmp_path, "User->>Scheduler: schedule", "participant LLM"))
    assert (result.matched, result.unknown) == (0, {})
    calls = Calls()
    with calls("hello.py", "request", lifeline="hello.py"):
        calls.leaf("LLM.chat")
        with calls("User.ask"):
            calls.leaf("LLM.generate")
    participants = "participant User", "participant hello"
    assert check(calls.trace(), expected(tmp_path, *participants, "User->>LLM: generate")).matched == 1
    assert check(calls.trace(), expected(tmp_path, *participants, "User->>LLM: chat")).matched == 0


def test_who_sends_an_http_request_may_be_called_user(run: Trace, tmp_path: Path):
    """The sender of an HTTP request is not recorded, so `User` or any other name matches it."""
    span = next(span for span in run.spans if names.HTTP_METHOD in span.attributes)
    for name in ("User", "Browser"):
        assert check(run, expected(tmp_path, f"{name}->>{span.lifeline}: {span.method}")).matched == 1


@pytest.mark.parametrize(
    ("arrows", "score"),
    [
        (["A->>B: f", "B->>C: g", "A->>B: h"], 3),
        (["A->>B: h", "A->>B: f", "B->>C: g"], 2.5),  # out of order
        (["A->>B: f", "A->>C: g", "A->>B: h"], 2.5),  # another caller
        (["A->>B: f", "B->>A: g", "A->>B: h"], 2.5),  # another callee
        (["A->>B: f", "C->>A: g", "A->>B: h"], 2),  # both differ
        (["A->>B: f", "B->>C: k", "A->>B: h"], 2),  # never called
    ],
)
def test_a_call_that_is_nearly_right_counts_half(tmp_path: Path, arrows: list[str], score: float):
    """A call out of order or with one wrong lifeline counts half; with two, or never called, it counts nothing."""
    calls = Calls()
    with calls("A.main"):
        with calls("B.f"):
            calls.leaf("C.g")
        calls.leaf("B.h")
    declared = [f"participant {name}" for name in "ABC"]
    result = check(calls.trace(), expected(tmp_path, *declared, *arrows))
    assert result.score == score
    assert result.matched == int(score)
