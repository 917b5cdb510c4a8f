"""Reports of large traces: twice the spans take twice the work, whatever their shape, and a page stays small."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.report.processes import served, sync_run
from tests.report.traces import Calls, step_facts
from tracellm.report.calltree import calltree
from tracellm.report.diagram.model import messages
from tracellm.report.diagram.sequence import LIMIT, sequence
from tracellm.report.html import report_html
from tracellm.report.steps_table import steps_table
from tracellm.trace import names
from tracellm.trace.compare import compare
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.run_folder import RunFolder


def roots(n: int) -> Trace:
    """Calls that nobody made, of many classes."""
    calls = Calls()
    for i in range(n):
        calls.leaf(f"A{i % 50}.f{i % 37}")
    return calls.trace()


def chain(n: int) -> Trace:
    """Calls each of which made the next."""
    return _by_hand(n, lambda i: i - 1 if i else None)


def threads(n: int) -> Trace:
    """Calls in many threads beside one another, some of which go on for long."""
    return _by_hand(
        n,
        lambda i: 0 if i else None,
        lambda i: {names.THREAD_NAME: f"w_{i % 17}"} | ({names.CALL_KIND: "loop"} if i % 5 == 0 else {}) if i else {},
    )


def coroutines(n: int) -> Trace:
    """Coroutines that call coroutines, many at a time."""
    return _by_hand(
        n, lambda i: (i - 1 if i % 9 else 0) if i else None, lambda i: {names.CALL_KIND: "coroutine"} if i else {}
    )


def _by_hand(
    n: int, parent: Callable[[int], int | None], more: Callable[[int], dict[str, Any]] = lambda i: {}
) -> Trace:
    process = Process(1, "main")
    spans = []
    for i in range(n):
        above = parent(i)
        end = i + 30 if more(i) else 100 * n - i
        attributes = {names.LIFELINE: "A"} | more(i)
        above_id = None if above is None else f"{above + 1:016x}"
        spans.append(Span("A.f", "1" * 32, f"{i + 1:016x}", above_id, i, end, attributes, process=process))
    return Trace(spans, [process])


def lines(n: int) -> Trace:
    """A script that never runs a line twice."""
    calls = Calls()
    with calls("s.py", lifeline="s.py"):
        for i in range(n):
            calls.leaf(f"A.f{i % 7}", line=(i, "x"))
    return calls.trace()


def changing(n: int) -> Trace:
    """Engine steps in each of which something changes."""
    calls = Calls()
    with calls("s.py", lifeline="s.py"), calls("LLM.generate", line=(3, "llm.generate()")):
        for i in range(n // 3):
            facts = step_facts(i + 1, [str(i), str(i + 1)], new=True)
            with calls("LLMEngine.step"), calls("EngineCore.step_fn", **facts):
                calls.leaf("Scheduler.schedule")
    return calls.trace()


def work(trace: Trace) -> int:
    """How many functions are called to make all reports of a trace: a measure that no other program disturbs."""
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += 1

    folder = RunFolder(Path("run"), {}, trace, [])
    sys.setprofile(counted)
    try:
        for report in (calltree, sequence, steps_table, lambda trace: compare(trace, trace)):
            report(trace)
        sequence(trace, detail="kernel")
        report_html(folder)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "make",
    [roots, chain, threads, coroutines, lines, changing, lambda n: sync_run(3, n // 60), lambda n: served(n // 60)],
    ids=["roots", "chain", "threads", "coroutines", "lines", "changing", "two processes", "server"],
)
def test_twice_the_spans_are_twice_the_work(make: Callable[[int], Trace], monkeypatch: pytest.MonkeyPatch):
    """No report does anything for every pair of spans, in runs of any shape."""
    monkeypatch.delenv("TRACELLM_CHECK_PASSES")
    work(make(60))  # imports, templates
    one, two = work(make(600)), work(make(1200))
    assert two < 2.3 * one


def test_a_diagram_keeps_its_limit_where_nobody_made_the_calls():
    """A thousand calls without a script around them are a diagram of limited size that says how many it leaves out."""
    diagram = sequence(roots(1000))
    assert len(list(messages(diagram.items))) == LIMIT
    assert f"{1000 - LIMIT} more calls are not drawn" in diagram.remark


HOSTILE = "<&\x00\u202e" * 3000


def _large() -> Trace:
    """A run that has too much of everything: requests with long texts, steps with many tokens, calls, threads."""
    calls = Calls()
    ids = [str(i) for i in range(8)]
    with calls("s.py", lifeline="s.py"), calls("LLM.generate", line=(3, HOSTILE)):
        for i in range(1700):
            facts = step_facts(i + 1, ids) | ({names.STEP_NEW: ids} if i % 8 == 0 else {})
            listed = ", ".join(f'[{k}, "{"<x>" * 20}", 0.1]' for k in range(5))
            facts |= {names.STEP_CANDIDATES: [f"[{listed}]"] * 8, names.STEP_SAMPLED_TEXTS: ["<" * 90] * 8}
            facts |= {names.STEP_HELD: [f"h{k}" for k in range(30)], names.STEP_HELD_REASONS: ["why"] * 30}
            facts |= {names.STEP_HELD_DETAILS: [f"a={HOSTILE[:200]}{i}{k}" for k in range(30)]}
            calls.leaf("EngineCore.step_fn", **facts)
        for i in range(1600):
            calls.leaf(f"A{i}.f", args=[HOSTILE], result=HOSTILE)
        for i in range(300):
            calls.leaf("B.g", **{names.THREAD_NAME: f"thread {i}"})
    spans = calls.spans
    for i in range(300):
        told = {names.REQUEST_ID: f"r{i}", names.REQUEST_PROMPT: HOSTILE, names.REQUEST_OUTPUT: HOSTILE}
        spans.append(Span(names.REQUEST_SPAN, "1" * 32, f"ff{i:014x}", None, i, i + 9, told, process=calls.process))
    return Trace(spans, [calls.process, Process(2, "other")])


def test_a_page_has_a_bound():
    """However long the run and its texts, the page is a few megabytes, and says what is missing and how to get it."""
    page = report_html(RunFolder(Path("run"), {}, _large(), []))
    assert len(page) < 8_000_000
    for command in ("show RUN steps", "show RUN tree", "show RUN sequence", "export RUN --to otlp"):
        assert command in page
