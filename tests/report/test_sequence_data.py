"""The page's sequence diagram: its data, and the Mermaid text that the page writes of any view."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.mermaid import ParseMermaid
from tests.node import require_node
from tests.report.nasty import NASTY
from tests.report.processes import served, sync_run
from tests.report.synthetic import HOSTILE, a_run
from tests.report.test_mermaid import everywhere
from tests.report.traces import hello
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.model import Diagram
from tracellm.report.diagram.sequence import sequence, whole_sequence
from tracellm.report.html.data import run_data
from tracellm.report.html.sequence_data import diagrams_data, sequence_data
from tracellm.report.texts import LANGUAGES
from tracellm.report.wording.request_names import RequestNames
from tracellm.report.wording.titles import message_title
from tracellm.trace import names
from tracellm.trace.model import Message, Span, Trace
from tracellm.trace.ranges import parse_ranges
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

ROOT = Path(__file__).parents[2]

Views = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def views() -> Views:
    """The page's own code: a function that returns the Mermaid texts of a diagram's views."""
    node = require_node()

    def write(data: dict[str, Any], trace: Trace, random: int = 12, follow: bool = False) -> list[Any]:
        run = run_data(trace)
        ids = [request["id"] for request in run["requests"]]
        job = {"data": data, "engines": run["engines"], "requests": ids, "random": random, "follow": follow}
        command = [node, str(ROOT / "tests" / "page" / "mermaid_views.mjs")]
        done = subprocess.run(command, input=json.dumps(job) + "\n", capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        answer: list[Any] = json.loads(done.stdout)
        return answer

    return write


def test_an_abort_has_its_request_whatever_step_is_around():
    """The title of ABORT has the ids of its requests, and not the number of those in a step that it is drawn in."""
    send = Span("send", "1" * 32, "1" * 16, None, 1, 2, {names.MESSAGE_TYPE: "ABORT", names.MESSAGE_ID: "ABORT dave"})
    step = steps(hello())[0]
    assert message_title([(Message(send, None), step)], RequestNames(), "en") == "ABORT dave"


def test_every_zoom_draws_messages():
    """Messages to other processes are at the level of requests, although steps send them."""

    def nodes(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [node for item in items for node in (item, *nodes(item.get("items", [])))]

    messages = [node for node in nodes(sequence_data(served())["whole"]["items"]) if "m" in node]
    assert messages
    assert {node["l"] for node in messages} == {0}


def _nasty() -> Trace:
    """Return a run with texts everywhere that break Mermaid and HTML."""
    spans = a_run(prompts=HOSTILE[:3], outputs=NASTY[:3], decode_steps=3)
    for i, span in enumerate(spans):
        text = [*NASTY, *HOSTILE][i % (len(NASTY) + len(HOSTILE))]
        span.attributes |= {names.ARGUMENTS: [text], names.RESULT: text[::-1]}
        if i % 5 == 0:
            span.attributes[names.LIFELINE] = text
    return Trace(spans)


RUNS = {
    "hello": hello(),
    "fails": hello(fails_at=3),
    "steps": Trace(a_run()),
    "sync": sync_run(),
    "killed": sync_run(killed=True),
    "served": served(3, 2),
    "nasty": _nasty(),
    "empty": Trace([]),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_view_is_valid_mermaid(name: str, views: Views, parse_mermaid: ParseMermaid):
    """The texts of all zooms and of randomly opened views parse, and the overview's equals Python's."""
    trace = RUNS[name]
    texts = views(sequence_data(trace), trace)
    assert texts[:2] == [to_mermaid(sequence(trace, lang=lang)) for lang in LANGUAGES]
    for text in dict.fromkeys(texts):
        if text.count("\n") > 1:
            assert parse_mermaid(text)["type"] == "sequence"


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_nasty_text_is_written_as_python_does(text: str, views: Views):
    """Texts known to break Mermaid are escaped in every field as `to_mermaid` escapes them."""
    diagram = everywhere(text)
    lines = tuple(replace(one, process=i) for i, one in enumerate(diagram.participants))
    items = diagram.items[:4] + diagram.items[6:]  # no layout makes an activation without anything inside
    diagram = replace(diagram, participants=lines, items=items)
    written = views(diagrams_data(Trace([]), [diagram] * 2, [diagram] * 2), Trace([]), random=0)
    assert written[0] == to_mermaid(diagram)


@pytest.mark.parametrize(("example", "processes"), [("hello.py", 1), ("async_generate.py", 2)])
def test_recorded_runs(example: str, processes: int, tmp_path: Path, views: Views, parse_mermaid: ParseMermaid):
    """All views of runs of this engine are valid Mermaid, in one process and in several; calls name every request."""
    command = [sys.executable, "-m", "tracellm", "run", "--explain", "--out", str(tmp_path), f"examples/{example}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    trace = RunFolder.open(tmp_path).trace
    assert len(trace.processes) == processes
    data = sequence_data(trace)
    named = {row for call in _calls(data["whole"]["items"]) for row in call.get("r", [])}
    assert named == set(range(len(trace.named(names.REQUEST_SPAN))))
    texts = views(data, trace, random=8)
    assert texts[0] == (tmp_path / "sequence.mmd").read_text(encoding="utf-8")
    for text in dict.fromkeys(texts):
        parsed = parse_mermaid(text)
        used = {event[end] for event in parsed["events"] for end in ("from", "to")}
        assert used >= {one["id"] for one in parsed["participants"]} or text in texts[:2]


def _calls(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [call for item in items for call in ([] if "g" in item else [item]) + _calls(item.get("items", []))]


@pytest.mark.parametrize("name", ["hello", "sync", "served"])
def test_arrows_have_the_numbers_of_their_spans(name: str):
    """Each arrow has the numbers of its spans in the trace, and each call of the overview is in the whole diagram."""
    trace = RUNS[name]
    data = sequence_data(trace)
    whole = {call["n"][0]: call for call in _calls(data["whole"]["items"])}
    texts = data["texts"]["en"]
    for number, call in whole.items():
        method = trace.spans[number].method
        assert call.get("m") or texts[call["t"]].startswith(method), (method, texts[call["t"]])
        assert call.get("c", 1) == 1 + sum(call["n"][2::2])
    assert {call["n"][0] for call in _calls(data["overview"]["items"]) if "m" not in call} <= whole.keys()


def _groups(items: list[dict[str, Any]]) -> list[list[Any]]:
    return [group for item in items for group in [*item.get("s", []), *_groups(item.get("items", []))]]


@pytest.mark.parametrize("name", ["hello", "sync", "served"])
def test_groups_have_the_indexes_of_their_steps(name: str):
    """Every step of the run is part of a group of the whole diagram."""
    found = {
        index for _, ranges in _groups(sequence_data(RUNS[name])["whole"]["items"]) for index in parse_ranges(ranges)
    }
    assert found == set(range(len(steps(RUNS[name]))))


def test_the_whole_diagram_has_a_limit():
    """A whole diagram of more arrows keeps the most important ones, and counts the others."""
    trace = Trace(a_run())
    diagram: Diagram = whole_sequence(trace, 50)
    assert "not drawn" in diagram.remark
    assert len(_calls(diagrams_data(trace, [diagram] * 2, [diagram] * 2)["whole"]["items"])) <= 50


def _with_requests(trace: Trace) -> Trace:
    """Return a handmade trace of several processes with a span for each request that was sent."""
    sent = [span for span in trace.spans if span.attributes.get(names.MESSAGE_TYPE) == "ADD"]
    sent = [span for span in sent if span.attributes[names.MESSAGE_OPERATION] == "send"]
    added = []
    for number, send in enumerate(sent):
        id = str(send.attributes[names.MESSAGE_ID]).partition(" ")[2]
        attributes = {names.REQUEST_ID: id, names.LIFELINE: "request", names.LEVEL: "request"}
        parent = trace.by_id[send.parent_span_id or ""].parent_span_id
        span_id = f"{number + 1_000_000:016x}"
        span = Span(names.REQUEST_SPAN, send.trace_id, span_id, parent, send.start_ns, send.end_ns, attributes)
        span.process = send.process
        added.append(span)
    return Trace([*trace.spans, *added], trace.processes)


SEVERAL = {
    "hello": hello(),
    "steps": Trace(a_run()),
    "sync": _with_requests(sync_run(4, 6)),
    "ahead": _with_requests(sync_run(3, 5, ahead=True)),
    "served": _with_requests(served(2, 5)),
    "many": _with_requests(served(7, 3)),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_a_followed_request_is_drawn_from_its_submission_to_its_end(
    name: str, views: Views, parse_mermaid: ParseMermaid
):
    """Following a request draws its submission, exactly its own steps and its outputs, and names no other request."""
    trace = SEVERAL[name]
    run = run_data(trace)
    answers = views(sequence_data(trace), trace, follow=True)
    assert len(answers) == len(run["requests"]) > 0
    ids = [request["id"] for request in run["requests"]]
    (engine,) = run["engines"]
    for row, answer in enumerate(answers):
        own = [
            index
            for index, step in enumerate(engine["steps"])
            if any(scheduled[0] == row for scheduled in step.get("scheduled", []))
        ]
        assert own
        assert sorted(answer["steps"]) == own
        calls = answer["calls"]
        assert any("add_request" in call for call in calls) == bool(trace.messages)
        has_outputs = bool(trace.named("OutputProcessor.process_outputs"))
        assert any(call.startswith("process_outputs(") for call in calls) == has_outputs
        assert any(call.startswith(("step_fn(", "step(")) for call in calls)
        if trace.messages:
            assert [call.split()[1] for call in calls if call.startswith("ADD ")] == [ids[row]]
            assert any(call.startswith("OUTPUTS") for call in calls)
        for other in {*ids} - {ids[row]}:
            assert not any(call.endswith(f"={other})") or f" {other} " in call for call in calls if "=" in call)
        assert parse_mermaid(answer["mermaid"])["type"] == "sequence"
