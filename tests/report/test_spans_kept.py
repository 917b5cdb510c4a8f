"""Each recorded span belongs to one arrow of the diagram: its own, or that of a call around it."""

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
    """Return how often each span is in the diagram, without return arrows."""
    found = Counter(diagram.inside)
    for arrow in messages(diagram.items):
        if arrow.kind in ("call", "message"):
            found.update([*arrow.spans, *arrow.inside])
    return found


def recorded(trace: Trace) -> Counter[str]:
    """Return every call of a trace except the scripts, which are lifelines."""
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
    """With any options, each span belongs to exactly one arrow: its own, or that of a call around it."""
    assert held(sequence(trace, **asked)) == recorded(trace)  # type: ignore[arg-type]


@patient
@given(st.lists(TREES, min_size=1, max_size=4), st.booleans(), st.integers(1, 12))
def test_any_trees_keep_their_spans(trees: list[Tree], script: bool, limit: int):
    """Any nesting of calls keeps all spans."""
    trace = trace_of(*trees, script=script)
    assert held(sequence(trace, limit=limit)) == recorded(trace)


@patient
@given(trace=processes(), limit=st.integers(1, 30))
def test_any_processes_keep_their_spans(trace: Trace, limit: int):
    """Any threads and processes keep all spans."""
    assert held(sequence(trace, limit=limit)) == recorded(trace)


def test_an_arrow_tells_its_spans_in_order():
    """The spans of a folded arrow are in the order of their starts."""
    trace = hello(tokens=17)
    order = {span.span_id: number for number, span in enumerate(trace.spans)}
    folded = [arrow for arrow in messages(sequence(trace).items) if len(arrow.spans) > 1]
    assert folded
    for arrow in folded:
        places = [order[id] for id in arrow.spans]
        assert places == sorted(places)


def test_the_page_tells_which_spans(browser: Browser, tmp_path: Path):
    """A clicked arrow shows how many spans it has, and the number of the first one in the recording."""
    folder = a_run_folder(a_run())
    page = tmp_path / "report.html"
    page.write_text(report_html(folder, "en"), encoding="utf-8")
    browser.open(page)
    assert browser.wait("document.documentElement.dataset.ready")
    assert not browser.displayed("#spans")
    browser.click(".sequence .arrow text.call")
    said = browser.run("return document.getElementById('spans').textContent")
    titles = browser.run(
        """return [...document.querySelectorAll('.arrow:has(path.call, path.return, path.error) > title')]
            .map(one => one.textContent)"""
    )
    assert len(titles) == sum(1 for _ in messages(sequence(folder.trace).items))
    assert said in titles
    for title in titles:
        number = re.search(r"^(?:call|.* calls, the first is) ([\d,]+)$", title, re.MULTILINE)
        assert number is not None, title
        assert int(number[1].replace(",", "")) < len(folder.trace.spans)
    assert any("calls, the first is " in title for title in titles)
    assert not browser.log()


def lose(tree: CallTree) -> CallTree:
    """Drop calls, as a broken pass."""
    next(node for node in walk(tree.roots) if node.children).replace_children([])
    return tree


def double(tree: CallTree) -> CallTree:
    """Double a call, as a broken pass."""
    return replace(tree, roots=[*tree.roots, tree.roots[0]])


def take_time(tree: CallTree) -> CallTree:
    """Shorten a call, as a broken pass."""
    tree.roots[0].own_ns -= 1
    return tree


@pytest.mark.parametrize("broken", [lose, double, take_time])
def test_a_pass_that_loses_something_is_found(broken, monkeypatch: pytest.MonkeyPatch):
    """A pass that loses or doubles a call or time is detected without thorough checks."""
    monkeypatch.delenv("TRACELLM_CHECK_PASSES", raising=False)
    with pytest.raises(PassError, match=f"the pass {broken.__name__} made"):
        run_passes(CallTree(hello(), call_tree(hello())), broken)


def test_a_pass_that_turns_calls_round_is_found(monkeypatch: pytest.MonkeyPatch):
    """A pass that changes the order is detected with TRACELLM_CHECK_PASSES set, and only then."""

    def turned(tree: CallTree) -> CallTree:
        tree.roots[0].replace_children([*reversed(tree.roots[0].children)])
        return tree

    monkeypatch.delenv("TRACELLM_CHECK_PASSES", raising=False)
    run_passes(CallTree(hello(), call_tree(hello())), turned)
    monkeypatch.setenv("TRACELLM_CHECK_PASSES", "1")
    with pytest.raises(PassError, match="out of order"):
        run_passes(CallTree(hello(), call_tree(hello())), turned)


def test_time_and_count_are_those_of_the_spans():
    """A node with a wrong time or count is detected."""
    for name in ("total_ns", "count"):
        tree = call_tree(hello())
        setattr(tree[0], name, getattr(tree[0], name) + 1)
        with pytest.raises(PassError):
            check_order(tree)


@pytest.mark.parametrize("make", [lambda: hello(tokens=9), sync_run])
def test_a_trace_goes_when_nobody_needs_it(make):
    """Report caches hold no reference to a trace."""
    trace = make()
    for report in (calltree, sequence, steps_table):
        assert report(trace) is not None
    assert sequence(trace) is sequence(trace)  # made once
    gone = weakref.ref(trace)
    del trace
    gc.collect()
    assert gone() is None
