"""What is drawn knows what it was drawn from: each recorded span is in one arrow, or in one that it was made in."""

import gc
import re
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.browser import Browser
from tests.report.processes import served, sync_run
from tests.report.synthetic import a_run, a_run_folder
from tests.report.test_fold import TREES, Tree, trace_of
from tests.report.test_story import processes
from tests.report.traces import hello
from tracellm.report.calltree import calltree
from tracellm.report.diagram.model import Diagram, messages
from tracellm.report.diagram.sequence import sequence
from tracellm.report.html import report_html
from tracellm.report.steps_table import steps_table
from tracellm.report.tree.invariants import PassError, check_order, run_passes
from tracellm.report.tree.nodes import CallTree, call_tree, walk
from tracellm.report.wording.titles import script_of
from tracellm.trace import names
from tracellm.trace.model import Trace

patient = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def held(diagram: Diagram) -> Counter[str]:
    """How often each span is in the diagram, returns left out."""
    found = Counter(diagram.inside)
    for arrow in messages(diagram.items):
        if arrow.kind in ("call", "message"):
            found.update([*arrow.spans, *arrow.inside])
    return found


def recorded(trace: Trace) -> Counter[str]:
    """Every call of a trace, but for the scripts, which are lifelines and no arrows."""
    return Counter(
        span.span_id
        for span in trace.spans
        if span.name != names.REQUEST_SPAN and not (span.parent_span_id is None and script_of(span))
    )


@pytest.mark.parametrize("trace", [hello(tokens=9), sync_run(), sync_run(ahead=True), sync_run(killed=True), served()])
@pytest.mark.parametrize(
    "asked",
    [{}, {"limit": 5}, {"limit": None}, {"detail": "request"}, {"detail": "kernel"}, {"focus": ["Scheduler"]}],
    ids=str,
)
def test_every_span_is_in_one_arrow(trace: Trace, asked: dict[str, object]):
    """Whatever is chosen to be drawn, each call is in its own arrow or in one that it was made in, and in no two."""
    assert held(sequence(trace, **asked)) == recorded(trace)  # type: ignore[arg-type]


@patient
@given(st.lists(TREES, min_size=1, max_size=4), st.booleans(), st.integers(1, 12))
def test_any_trees_keep_their_spans(trees: list[Tree], script: bool, limit: int):
    """Of any calls that nest in any way, none is lost on the way to the diagram."""
    trace = trace_of(*trees, script=script)
    assert held(sequence(trace, limit=limit)) == recorded(trace)


@patient
@given(trace=processes(), limit=st.integers(1, 30))
def test_any_processes_keep_their_spans(trace: Trace, limit: int):
    """Nor of any threads of any processes."""
    assert held(sequence(trace, limit=limit)) == recorded(trace)


def test_an_arrow_tells_its_spans_in_order():
    """The spans of a folded arrow are in the order in which they began."""
    trace = hello(tokens=17)
    order = {span.span_id: number for number, span in enumerate(trace.spans)}
    folded = [arrow for arrow in messages(sequence(trace).items) if len(arrow.spans) > 1]
    assert folded
    for arrow in folded:
        places = [order[id] for id in arrow.spans]
        assert places == sorted(places)


def test_the_page_tells_which_spans(browser: Browser, tmp_path: Path):
    """An arrow that is clicked has said below it how many spans it stands for, and which are the first and the last."""
    folder = a_run_folder(a_run())
    page = tmp_path / "report.html"
    page.write_text(report_html(folder, "en"), encoding="utf-8")
    ids = {span.span_id for span in folder.trace.spans}
    browser.open(page)
    assert not browser.displayed("#spans")
    browser.click(".sequence .arrow text")
    said = browser.run("return document.getElementById('spans').textContent")
    assert set(re.findall(r"\b[0-9a-f]{16}\b", said)) <= ids
    titles = browser.run("return [...document.querySelectorAll('.arrow > title')].map(one => one.textContent)")
    assert len(titles) == browser.count(".arrow") == sum(1 for _ in messages(sequence(folder.trace).items))
    assert said in titles
    for title in titles:
        assert set(re.findall(r"\b[0-9a-f]{16}\b", title)) & ids
    assert any("spans, the first" in title for title in titles)
    rows = browser.run("return [...document.querySelectorAll('.tree .name[title]')].map(one => one.title)")
    assert any("spans, the first" in row for row in rows)
    assert not browser.log()


def lose(tree: CallTree) -> CallTree:
    """A pass that loses calls."""
    next(node for node in walk(tree.roots) if node.children).replace_children([])
    return tree


def double(tree: CallTree) -> CallTree:
    """A pass that doubles a call."""
    return replace(tree, roots=[*tree.roots, tree.roots[0]])


def take_time(tree: CallTree) -> CallTree:
    """A pass that takes time away."""
    tree.roots[0].own_ns -= 1
    return tree


@pytest.mark.parametrize("broken", [lose, double, take_time])
def test_a_pass_that_loses_something_is_found(broken, monkeypatch: pytest.MonkeyPatch):
    """A pass that loses or doubles a call, or time, does not go unseen, also where nobody asked for thorough checks."""
    monkeypatch.delenv("TRACELLM_CHECK_PASSES", raising=False)
    with pytest.raises(PassError, match=f"the pass {broken.__name__} made"):
        run_passes(CallTree(hello(), call_tree(hello())), broken)


def test_a_pass_that_turns_calls_round_is_found(monkeypatch: pytest.MonkeyPatch):
    """With TRACELLM_CHECK_PASSES set, so is one that changes their order; without, it is not looked for."""

    def turned(tree: CallTree) -> CallTree:
        tree.roots[0].replace_children([*reversed(tree.roots[0].children)])
        return tree

    monkeypatch.delenv("TRACELLM_CHECK_PASSES", raising=False)
    run_passes(CallTree(hello(), call_tree(hello())), turned)
    monkeypatch.setenv("TRACELLM_CHECK_PASSES", "1")
    with pytest.raises(PassError, match="out of order"):
        run_passes(CallTree(hello(), call_tree(hello())), turned)


def test_time_and_count_are_those_of_the_spans():
    """A node whose time or number is not that of its calls is found."""
    for name in ("total_ns", "count"):
        tree = call_tree(hello())
        setattr(tree[0], name, getattr(tree[0], name) + 1)
        with pytest.raises(PassError):
            check_order(tree)


@pytest.mark.parametrize("make", [lambda: hello(tokens=9), sync_run])
def test_a_trace_goes_when_nobody_needs_it(make):
    """What reports keep of a trace goes with it: no cache holds a trace of a million spans for the next report."""
    trace = make()
    for report in (calltree, sequence, steps_table):
        assert report(trace) is not None
    assert sequence(trace) is sequence(trace)  # made once
    gone = weakref.ref(trace)
    del trace
    gc.collect()
    assert gone() is None
