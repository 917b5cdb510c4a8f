"""Exports as text: the table, the graph of objects (drawn by real Graphviz), the sequence diagram."""

import csv
import io
import json
import os
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.export.runs import folder_of, run_of_two
from tests.mermaid import ParseMermaid
from tests.report.nasty import NASTY
from tests.report.synthetic import HOSTILE
from tracellm.report.export import export
from tracellm.report.export.dot import quoted
from tracellm.report.export.table import COLUMNS
from tracellm.report.wording.safe_text import visible
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace


def written(trace: Trace, format: str, **more: Any) -> str:
    """Return an export in one piece, as text."""
    return b"".join(export(folder_of(trace), format, **more)).decode()


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a table, read by Python's csv module."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_table_has_a_row_for_each_span():
    """Times count from the beginning; attributes without a column are JSON in the last one."""
    trace = run_of_two()
    table = rows(written(trace, "csv"))
    assert tuple(table[0]) == COLUMNS
    for span, row in zip(trace.spans, table, strict=True):
        assert int(row["start_ns"]) == span.start_ns - trace.spans[0].start_ns
        assert (int(row["duration_ns"]), row["name"], row["class"]) == (span.duration_ns, span.name, span.lifeline)
        assert (row["span_id"], row["parent_span_id"]) == (span.span_id, span.parent_span_id or "")
        assert row["thread"] == span.attributes.get(names.THREAD_NAME, "MainThread")
        assert row["links"].split() == [link.span_id for link in span.links]
        events = json.loads(row["events"] or "[]")
        assert events == [
            [event.name, event.time_ns - trace.spans[0].start_ns, event.attributes] for event in span.events
        ]
        rest = json.loads(row["attributes"])
        columns = {names.LEVEL, names.LIFELINE, names.THREAD_NAME}
        assert rest == {name: value for name, value in span.attributes.items() if name not in columns}


@pytest.mark.parametrize("text", [*NASTY, *HOSTILE], ids=ascii)
def test_a_table_holds_any_text(text: str):
    """Quotes, separators and line ends in names, errors and values are read back unchanged."""
    span = Span(text, "1" * 32, "2" * 16, None, 0, 1, {"x": text}, error=text, process=Process(1, "main"))
    [row] = rows(written(Trace([span]), "csv"))
    whole = text.encode("utf-8", "replace").decode()
    assert (row["name"], row["error"], json.loads(row["attributes"])["x"]) == (whole, whole, whole)


def drawn(source: str) -> dict[str, Any]:
    """Return Graphviz's drawing of a graph; without Graphviz skip the test, or fail it where CI is set."""
    program = shutil.which("dot")
    if program is None:
        lacks = "lacks Graphviz's dot on the PATH (Debian: apt-get install graphviz)"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(lacks)
        pytest.skip(lacks)
    done = subprocess.run([program, "-Tdot_json"], input=source, capture_output=True, encoding="utf-8", check=True)
    assert done.stderr == ""
    graph: dict[str, Any] = json.loads(done.stdout)
    return graph


def test_graphviz_draws_who_calls_whom():
    """Objects are in the frames of their processes, with counted calls, a bold started process and dashed messages."""
    graph = drawn(written(run_of_two(prompts=2, tokens=3), "dot"))
    nodes = {one["_gvid"]: one for one in graph["objects"]}
    labels = {number: one["label"].partition("\\n")[0] for number, one in nodes.items()}
    frames = {one["label"]: {labels[node] for node in one["nodes"]} for one in nodes.values() if "nodes" in one}
    main, engine = frames["main (pid 10)"], frames["EngineCore_0 (pid 11)"]
    assert {"hello.py", "LLM", "LLMEngine", "SyncMPClient"} <= main
    assert {"EngineCoreProc", "UniProcExecutor", "Worker", "GPUModelRunner", "Qwen2ForCausalLM", "Scheduler"} <= engine
    edges = {(labels[edge["tail"]], labels[edge["head"]], edge["label"]): edge.get("style") for edge in graph["edges"]}
    for caller, callee in (("LLM", "LLMEngine"), ("UniProcExecutor", "Worker"), ("Worker", "GPUModelRunner")):
        assert any(edge[:2] == (caller, callee) for edge in edges)
    assert edges["LLMEngine", "SyncMPClient", "×5"] is None
    assert edges["SyncMPClient", "EngineCoreProc", "×1"] == "bold"
    assert edges["SyncMPClient", "EngineCoreProc", "ADD ×2"] == "dashed"
    assert edges["EngineCoreProc", "SyncMPClient", "OUTPUTS ×3"] == "dashed"


def test_a_graph_goes_as_deep_as_asked():
    """A graph down to steps has no layers of the model."""
    assert '"Qwen2ForCausalLM' in written(run_of_two(), "dot", detail="layer")
    steps = written(run_of_two(), "dot", detail="step")
    assert '"GPUModelRunner' in steps
    assert "Qwen2ForCausalLM" not in steps


@pytest.mark.parametrize("text", [*NASTY, *HOSTILE], ids=ascii)
def test_graphviz_shows_any_text(text: str):
    """The graph is valid for any name, and shows it unchanged."""
    source = f"digraph {{ n [label={quoted(text, 500)}] }}"
    [node] = drawn(source)["objects"]
    assert node["label"].replace("\\\\", "\\") == visible(text).encode("utf-8", "replace").decode()


@given(st.text(max_size=80))
def test_a_quoted_text_is_one_string(text: str):
    """A quoted text has no bare quote, and no trailing backslash that escapes the last one."""
    inner = quoted(text)[1:-1]
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
    assert (len(inner) - len(inner.rstrip("\\"))) % 2 == 0
    assert len(inner.splitlines()) <= 1


def test_the_legend_is_in_the_readers_language():
    """The legend is in the reader's language."""
    assert "调用方 → 被调用方" in written(run_of_two(), "dot", lang="zh")
    assert "caller → callee" in written(run_of_two(), "dot", lang="en")


def test_the_sequence_diagram_is_the_reports(parse_mermaid: ParseMermaid):
    """`--to mermaid` writes the diagram of `show sequence`, and real Mermaid parses it."""
    from tracellm.report.diagram.sequence import sequence_diagram

    trace = run_of_two()
    assert written(trace, "mermaid") == sequence_diagram(trace)
    assert parse_mermaid(written(trace, "mermaid", detail="step"))["participants"]
