"""Reports of several processes apart from the diagram: call tree, table of messages, page."""

import re

import pytest

from tests.report.processes import served, sync_run
from tests.report.synthetic import HOSTILE, a_run, a_run_folder, shown_html
from tracellm.report.calltree import calltree
from tracellm.report.facts.process_messages import ProcessFacts, crossings, processes
from tracellm.report.html.boundary_view import process_view
from tracellm.report.steps_table import steps_table
from tracellm.report.texts import LANGUAGES
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder


def folder_of(trace: Trace) -> RunFolder:
    """Return a run folder in memory with this trace."""
    folder = a_run_folder([])
    return RunFolder(folder.path, folder.manifest, trace, [])


def words(source: str) -> str:
    """Return a page's text without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", source.partition("<body>")[2]))


def test_the_call_tree_marks_where_the_process_or_the_thread_changes():
    """A call in another process or thread stands below the call that started it, with a mark."""
    text = calltree(sync_run(), width=140)
    [process] = [line for line in text.splitlines() if "[process EngineCore_0]" in line]
    assert "EngineCoreProc.run_engine_core" in process
    assert re.search(r"EngineCoreProc.process_input_sockets \[thread\]", text)
    assert re.search(r"SyncMPClient.process_outputs_socket \[thread\]", text)
    assert "[task]" not in text
    assert "[thread" not in "\n".join(line for line in text.splitlines() if "run_busy_loop" in line)


def test_the_call_tree_groups_the_steps_of_the_other_process():
    """The engine core's steps are folded below the busy loop, as in an in-process run."""
    text = calltree(sync_run(2, 9), width=140)
    assert re.search(r"steps 2-8: decode, 2 requests +×7", text)
    assert text.index("run_busy_loop") < text.index("steps 2-8") < text.index("LLM.generate")


def test_roots_of_several_processes_are_told_apart():
    """A process without a recorded parent is a root with the process's name."""
    whole = sync_run()
    starter = {span.span_id for span in whole.named("MPClient.launch_core_engines")}
    kept = [span for span in whole.spans if span.span_id not in starter]
    text = calltree(Trace(kept, whole.processes), width=140)
    assert re.search(r"^hello.py \[process main\]", text, re.MULTILINE)
    assert re.search(r"^EngineCoreProc.run_engine_core \[process EngineCore_0\]", text, re.MULTILINE)


def test_tasks_are_marked():
    """A coroutine that continues after its caller returns is marked as a task."""
    assert re.search(r"AsyncLLM.output_handler \[task\]", calltree(served(), width=140))


def test_messages_are_counted_by_type_and_direction():
    """Messages are counted by type and direction, with their bytes and transit time."""
    add, outputs = crossings(sync_run(3, 6))
    assert (add.type, add.source, add.target, add.count, add.bytes, add.lost) == (
        "ADD", "main", "EngineCore_0", 3, 900, 0
    )  # fmt: skip
    assert (outputs.type, outputs.source, outputs.target, outputs.count, outputs.bytes) == (
        "OUTPUTS", "EngineCore_0", "main", 6, 1080
    )  # fmt: skip
    assert add.seconds is not None
    assert outputs.seconds == pytest.approx(1e-6)  # a microsecond of this trace's clock


def test_messages_that_nobody_received_have_no_time():
    """A message with only one recorded end has a count, but no time."""
    trace = sync_run()
    client = Trace([span for span in trace.spans if span.process and span.process.name == "main"])
    [add] = crossings(client)
    assert (add.count, add.target, add.seconds, add.lost) == (3, None, None, 3)


def test_processes_and_their_threads():
    """Each process has its threads, and the role of the engine core if it makes the steps."""
    main, core = processes(sync_run(3, 6))
    assert (main.name, main.threads, main.steps) == ("main", ("process_outputs_socket",), 0)
    assert (core.name, core.threads, core.steps) == (
        "EngineCore_0", ("process_input_sockets", "process_output_sockets"), 6
    )  # fmt: skip


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_has_a_section_on_the_boundary(lang):
    """The page names processes and threads, and each type of message with its count and bytes."""
    source = shown_html(folder_of(sync_run(3, 6)), lang)
    assert '<h2 id="boundary">' in source
    assert '<a href="#boundary">' in source
    said = words(source)
    for fact in (
        "EngineCore_0",
        "process_input_sockets",
        "main → EngineCore_0",
        "EngineCore_0 → main",
        "ADD",
        "OUTPUTS",
    ):
        assert fact in said
    assert "900 B" in said
    assert "1.1 kB" in said
    assert "ROUTER" in said
    assert 'class="boundary"' in source  # the line between the boxes


def test_the_page_of_one_process_has_none():
    """The page of a single process has no section on the boundary."""
    source = shown_html(a_run_folder(a_run()))
    assert 'id="boundary"' not in source
    assert "#boundary" not in source


def test_steps_and_client_of_another_process_are_on_the_page():
    """The page has the steps and the choice of the client, whichever process recorded them."""
    said = words(shown_html(folder_of(sync_run(3, 6))))
    assert "SyncMPClient chosen" in said
    assert "In a real vLLM, 0.11 or later, a plain LLM() gets this client" in said
    assert "vllm/v1/engine/core_client.py" in said
    assert "2-5" in said
    assert "2-5" in steps_table(sync_run(3, 6))


def test_hostile_processes_threads_and_messages_stay_text():
    """Names of processes and threads, and message ids, are escaped."""
    trace = sync_run()
    for span in trace.spans:
        if names.MESSAGE_ID in span.attributes:
            span.attributes[names.MESSAGE_TYPE] = HOSTILE[0]
            span.attributes[names.MESSAGE_ID] += HOSTILE[1]
        if names.THREAD_NAME in span.attributes:
            span.attributes[names.THREAD_NAME] = HOSTILE[4]
        assert span.process is not None
        span.process.name = HOSTILE[2]
    source = shown_html(folder_of(Trace(trace.spans, trace.processes)))
    assert "<script>document" not in source
    assert "<svg onload" not in source
    assert "<img" not in source


@pytest.mark.parametrize(
    ("name", "steps", "role"),
    [
        ("main", 0, "front end"),
        ("main", 3, "engine core"),
        ("EngineCore", 0, "engine core"),
        ("VllmWorker-0", 0, "worker"),
        ("DP_Coordinator", 0, "coordinator"),
    ],
)
def test_a_process_is_told_by_what_it_is(name: str, steps: int, role: str):
    """The process with the steps is the engine core; without steps its name decides."""
    assert role in process_view(ProcessFacts(name, 1, (), 5, steps), "en")["role"]
