"""Exported timelines opened in the real page of Perfetto, and queried with its own SQL."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.export.perfetto_page import PerfettoPage, perfetto_page
from tests.export.runs import folder_of, run_of_tasks, run_of_two
from tracellm.report.export import export
from tracellm.trace.model import Trace

ROOT = Path(__file__).parents[2]
RUNS = {"two processes": run_of_two, "tasks": run_of_tasks}
SPAN_ID = {"chrome": "args.span_id", "perfetto": "debug.span_id"}
"""Perfetto's name of a slice's argument `span_id`."""

SLICES = """
select extract_arg(slice.arg_set_id, '{span_id}'), slice.id, slice.parent_id, slice.name, slice.ts, slice.dur,
       process.pid, process.name
from slice left join thread_track on slice.track_id = thread_track.id left join thread using (utid)
left join process using (upid)
"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[PerfettoPage]:
    """Perfetto, shared by all tests as it starts slowly."""
    with perfetto_page(browser) as page:
        yield page


@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("format", SPAN_ID)
def test_a_viewer_shows_what_was_recorded(format: str, make: Callable[[], Trace], page: PerfettoPage):
    """Every span is a slice with its exact time, within its caller's slice or with an arrow from it."""
    trace = make()
    page.open(b"".join(export(folder_of(trace), format)))
    slices = page.query(SLICES.format(span_id=SPAN_ID[format]))
    arrows = set(page.query("select slice_out, slice_in from flow"))
    errors = page.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    tracks = {name for (name,) in page.query("select name from thread")}
    requests = page.query(
        "select t.name, s.name from slice s join process_track t on s.track_id = t.id order by t.name, s.ts, s.id"
    )
    moments = page.query("select ts, parent_id from slice where name = 'mark'")
    assert errors == []
    by_span = {row[0]: row for row in slices if row[0] is not None}
    assert by_span.keys() == trace.by_id.keys()
    begin = min(int(row[4]) for row in slices) - trace.spans[0].start_ns
    span_of = {row[1]: span_id for span_id, row in by_span.items()}
    for span in trace.spans:
        _, number, around, name, start, duration, pid, process = by_span[span.span_id]
        assert (int(start) - begin, int(duration)) == (span.start_ns, span.duration_ns)
        if span.name == "llm_request":
            assert name.startswith("request ")
            continue
        assert span.process is not None
        assert (name, int(pid), process) == (span.name, span.process.pid, span.process.name)
        caller = trace.parent(span)
        if span_of.get(around) != (caller.span_id if caller else None):
            assert around is None, f"{name} is drawn within what did not call it"
            assert caller is not None
            beside = span.thread == caller.thread and make is run_of_tasks
            assert beside or (by_span[caller.span_id][1], number) in arrows
    marked = trace.named("EngineCore.step_fn")[0]
    assert [(int(at) - begin, step) for at, step in moments] == [(marked.events[0].time_ns, by_span[marked.span_id][1])]
    for message in trace.messages:
        assert message.receive is not None
        assert (by_span[message.send.span_id][1], by_span[message.receive.span_id][1]) in arrows
    assert {"process_input_sockets", "process_output_sockets"} <= tracks
    assert {name for name, _ in requests} >= {"request 0" if make is run_of_two else "request chatcmpl-0"}
    assert [phase for name, phase in requests if name.endswith("0")][1:] == ["waiting", "prefill", "decode"]
    steps = trace.named("EngineCore.step_fn")
    for one, next_one in pairwise(steps):
        assert (by_span[one.span_id][1], by_span[next_one.span_id][1]) in arrows, "a request's way through the steps"


@pytest.mark.parametrize("name", ["docs/export.md", "docs/zh/export.md"])
def test_the_questions_of_the_page_are_answered(name: str, page: PerfettoPage):
    """The documented SQL finds kernels, and the phases of requests."""
    text = (ROOT / name).read_text(encoding="utf-8")
    time, waiting = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    kinds = re.findall(r"extract_arg\(.*?\)", text)
    for format, kind in zip(("perfetto", "chrome"), kinds, strict=True):
        page.open(b"".join(export(folder_of(run_of_two()), format)))
        found = page.query(f"select {kind} as kind from slice where kind is not null order by ts")
        assert found == [("prefill",), ("decode",), ("decode",)]
        assert [row[0] for row in page.query(time.replace("kernel", "step"))]
        assert [row[:2] for row in page.query(waiting)][:3] == [
            ("request 0", "waiting"), ("request 0", "prefill"), ("request 0", "decode")
        ]  # fmt: skip
