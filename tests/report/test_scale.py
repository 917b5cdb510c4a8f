"""Reports of large traces: their cost is linear, and the page has a bounded size."""

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
    """Calls without callers, of many classes."""
    calls = Calls()
    for i in range(n):
        calls.leaf(f"A{i % 50}.f{i % 37}")
    return calls.trace()


def chain(n: int) -> Trace:
    """A chain of calls, each below the previous one."""
    return _by_hand(n, lambda i: i - 1 if i else None)


def threads(n: int) -> Trace:
    """Calls in many concurrent threads, some of them long."""
    return _by_hand(
        n,
        lambda i: 0 if i else None,
        lambda i: {names.THREAD_NAME: f"w_{i % 17}"} | ({names.CALL_KIND: "loop"} if i % 5 == 0 else {}) if i else {},
    )


def coroutines(n: int) -> Trace:
    """Many concurrent coroutines that call coroutines."""
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
    """A script that runs each line once."""
    calls = Calls()
    with calls("s.py", lifeline="s.py"):
        for i in range(n):
            calls.leaf(f"A.f{i % 7}", line=(i, "x"))
    return calls.trace()


def changing(n: int) -> Trace:
    """Engine steps with a change in each."""
    calls = Calls()
    with calls("s.py", lifeline="s.py"), calls("LLM.generate", line=(3, "llm.generate()")):
        for i in range(n // 3):
            facts = step_facts(i + 1, [str(i), str(i + 1)], new=True)
            with calls("LLMEngine.step"), calls("EngineCore.step_fn", **facts):
                calls.leaf("Scheduler.schedule")
    return calls.trace()


def work(trace: Trace) -> int:
    """Return the number of function calls to make all reports, a measure without noise."""
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
    """Twice the spans take twice the work, for runs of any shape."""
    monkeypatch.delenv("TRACELLM_CHECK_PASSES")
    work(make(60))  # imports, templates
    one, two = work(make(600)), work(make(1200))
    assert two < 2.3 * one


def test_a_diagram_keeps_its_limit_where_nobody_made_the_calls():
    """A thousand calls without a script give a bounded diagram that counts the omitted ones."""
    diagram = sequence(roots(1000))
    assert len(list(messages(diagram.items))) == LIMIT
    assert f"{1000 - LIMIT} more calls are not drawn" in diagram.remark


HOSTILE = "<&\x00\u202e" * 3000


def _large() -> Trace:
    """Return a run with long texts and many requests, steps, calls and threads."""
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
        attributes = {names.REQUEST_ID: f"r{i}", names.REQUEST_PROMPT: HOSTILE, names.REQUEST_OUTPUT: HOSTILE}
        spans.append(
            Span(names.REQUEST_SPAN, "1" * 32, f"ff{i:014x}", None, i, i + 9, attributes, process=calls.process)
        )
    return Trace(spans, [calls.process, Process(2, "other")])


def test_a_page_has_a_bound():
    """The page has at most a few megabytes, with notes on what is missing and how to see it."""
    page = report_html(RunFolder(Path("run"), {}, _large(), []))
    assert len(page) < 8_000_000
    for command in ("show RUN steps", "show RUN tree", "show RUN sequence", "show RUN requests"):
        assert command in page
