"""The page about the server, and its explained run: one chat request through two processes."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import server_docs
from scripts.make_docs import MADE, filled, normal
from scripts.server_questions import CALLER, RUN
from scripts.server_tables import ENGINE
from tests.mermaid import ParseMermaid
from tracellm.cli.commands.serve import SERVER_DEFAULTS
from tracellm.cli.options import engine_options
from tracellm.engine.entrypoints.openai import http_requests, protocol, serving_engine
from tracellm.engine.entrypoints.openai.api_server import PATHS
from tracellm.engine.entrypoints.openai.responses import protocol as responses
from tracellm.engine.entrypoints.pooling import serving_pooling
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.report.texts import Language
from tracellm.trace import names
from tracellm.trace.expect import check, read
from tracellm.trace.model import Link, Trace
from tracellm.trace.names import REQUEST_SPAN
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

ROOT = Path(__file__).parents[2]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the servers and their output, with one explained run for all tests here."""
    folder = tmp_path_factory.mktemp("servers")
    return folder, server_docs.record(folder)


@pytest.fixture(scope="module")
def run(servers: tuple[Path, dict[str, Any]]) -> RunFolder:
    """The explained run: one chat request with a `traceparent`, then SIGTERM."""
    return RunFolder.open(servers[0] / RUN)


@pytest.fixture
def trace(run: RunFolder) -> Trace:
    """The spans of the explained run."""
    return run.trace


def page(lang: Language) -> str:
    """The page in this language."""
    return (ROOT / server_docs.PAGES[lang]).read_text(encoding="utf-8")


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_has_the_limits_of_a_request(lang: Language) -> None:
    """The table of limits has the numbers of the code, in its order."""
    rows = re.findall(r"^\| .+ \| ([\d,、，；; ]+) \|$", page(lang), re.MULTILINE)
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d+(?:,\d{3})*", " ".join(rows))]
    counts = [most for _, most in http_requests._MAX_COUNTS.values()]
    messages, *items = http_requests._MAX_ITEMS.values()
    strings = protocol._MAX_STRINGS
    assert numbers == [
        *(http_requests._MAX_DEPTH, *counts, http_requests._MAX_FIELDS, messages, responses._MAX_ITEMS, *items),
        *(strings, strings, protocol._MAX_BAD_CHARACTERS, serving_engine._MAX_CHOICES),
        *(serving_pooling._MAX_INPUTS, protocol.MAX_ID_LENGTH),
    ]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_says_what_servers_say(lang: Language, servers: tuple[Path, dict[str, Any]]) -> None:
    """Each command, program and table on the page gives the output of a real server."""
    now = filled(page(lang), server_docs.blocks(lang, *servers))
    assert normal(page(lang)) == normal(now), f"{server_docs.PAGES[lang]} is stale: run `make docs`"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_nothing_else_is_shown(lang: Language) -> None:
    """The handwritten text has two commands: the start of the explained run, and vLLM's load generator."""
    by_hand = re.findall(r"(?s)```\w+\n(.*?)```", MADE.sub("", page(lang)))
    load, explain = sorted(by_hand, key=lambda block: "--explain" in block)
    assert explain == f"$ tracellm serve --dtype float32 --explain --out {RUN}\n"
    tested = (ROOT / "tests" / "server" / "test_serve.py").read_text(encoding="utf-8")
    assert load.startswith("vllm bench serve ")
    for option in re.findall(r"--[a-z-]+", load):
        assert f'"{option}"' in tested or option == "--request-rate"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_names_every_path(lang: Language) -> None:
    """The page's table has every path of the server."""
    table = MADE.sub("", page(lang))
    for path in PATHS:
        shown = path.replace("{model_name:path}", "NAME").replace("{response_id}", "ID")
        assert f"{shown}`" in table


# -- the explained run -------------------------------------------------------------------------------------------------


def test_it_ends_well(servers: tuple[Path, dict[str, Any]], run: RunFolder) -> None:
    """SIGTERM ends the server and engine processes with exit status 0, and the recording is complete."""
    status, said = servers[1]["end"]
    assert status == 0
    assert "Traceback" not in said
    assert run.problems == []
    manifest = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    assert (manifest["status"], manifest["exit_status"], manifest["error"]) == ("finished", 0, None)
    assert (manifest["probes"]["missing"], manifest["probes"]["problems"]) == ([], [])
    assert {process.name for process in run.trace.processes} == {"main", "EngineCore_0"}
    for process in run.trace.processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


def test_a_dead_engine_ends_the_server(servers: tuple[Path, dict[str, Any]]) -> None:
    """The server with the killed engine ends with status 1 and one line with the reason."""
    status, said = servers[1]["killed-end"]
    assert status == 1
    assert re.fullmatch(r"tracellm: The engine process EngineCore_0 was killed by SIGKILL.*\n", said)


def test_the_documents_calls(trace: Trace) -> None:
    """The run has all 59 calls of vLLM's diagram that need no image, in order."""
    result = check(trace, read(str(ROOT / server_docs.EXPECTATION)))
    assert (result.matched, result.total, result.needs) == (59, 59, {"mm": 8})


def test_one_trace_from_the_caller_to_the_step(trace: Trace) -> None:
    """The request's spans have the caller's trace id below the caller's span, and steps link to it."""
    trace_id, caller = CALLER
    [http] = [span for span in trace.spans if names.HTTP_METHOD in span.attributes]
    [life] = trace.named(REQUEST_SPAN)
    assert (http.trace_id, http.parent_span_id, life.trace_id) == (trace_id, caller, trace_id)
    assert http.attributes[names.HTTP_STATUS] == 200
    above = trace.parent(life)
    while above is not None and above is not http:
        above = trace.parent(above)
    assert above is http
    steps = [span for span in trace.named(STEP_SPAN) if span.attributes.get(names.STEP_REQUESTS)]
    assert len(steps) == 8
    for step in steps:
        assert step.process is not None
        assert step.process.name == "EngineCore_0"
        assert step.links == [Link(trace_id, life.span_id, {names.REQUEST_ID: "chatcmpl-capital"})]


def test_every_span_has_its_place(trace: Trace) -> None:
    """No span's parent is missing; the processes' own work is one trace, and the request another."""
    assert trace.orphans == []
    ids = {
        name: {span.trace_id for span in trace.spans if span.process is not None and span.process.name == name}
        for name in ("main", "EngineCore_0")
    }
    [own] = ids["EngineCore_0"]
    assert own == trace.named("tracellm serve")[0].trace_id
    assert {own, CALLER[0]} <= ids["main"]
    assert {link.trace_id for step in trace.named(STEP_SPAN) for link in step.links} == {CALLER[0]}


def test_messages_arrive_after_they_were_sent(trace: Trace) -> None:
    """Each message has an end in each process, with causes before effects; receives link to sends."""
    assert trace.unsent == []
    sent = [str(message.send.attributes[names.MESSAGE_TYPE]) for message in trace.messages]
    assert (sent.count("ADD"), set(sent)) == (1, {"ADD", "OUTPUTS"})
    for message in trace.messages:
        assert message.receive is not None
        assert message.receive.process is not message.send.process
        assert message.send.start_ns <= message.receive.start_ns
        assert message.send.span_id in [link.span_id for link in message.receive.links]


def test_its_diagrams_are_mermaid(run: RunFolder, parse_mermaid: ParseMermaid) -> None:
    """The run's diagrams are valid Mermaid: the default, the Chinese and the most detailed one."""
    longest, chinese = sequence_diagram(run.trace, detail="kernel"), sequence_diagram(run.trace, lang="zh")
    for diagram in ((run.path / "sequence.mmd").read_text(encoding="utf-8"), chinese, longest):
        assert parse_mermaid(diagram)["type"] == "sequence"


def test_the_table_of_options_is_that_of_the_engines_settings() -> None:
    """The table has each setting with its meaning, and no others."""
    assert set(ENGINE) == {option.name for option in engine_options(SERVER_DEFAULTS) if not option.hidden}
