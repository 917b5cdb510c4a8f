"""Reports of recordings of two machines with different clocks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.processes import served, sync_run
from tests.report.synthetic import shown_html
from tests.report.test_story import ordered, sent, spans_of
from tracellm.report.calltree import calltree
from tracellm.report.diagram.model import check_diagram
from tracellm.report.diagram.sequence import sequence
from tracellm.report.diff import diff_text
from tracellm.report.export import FORMATS, export
from tracellm.report.facts.process_messages import crossings
from tracellm.report.tree.nodes import call_tree
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder


@pytest.mark.parametrize("make", [sync_run, served])
@pytest.mark.parametrize("skew", [-(10**9), -200_000, 200_000, 10**9])
def test_clocks_of_two_machines_may_differ(make: Callable[[], Trace], skew: int):
    """Receives before their sends lose no span or message, and all diagrams stay valid."""
    true, trace = make(), make()
    for span in trace.spans:
        if span.process is not trace.spans[0].process:
            span.start_ns += skew
            span.end_ns += skew
    trace = Trace(trace.spans)
    assert any(one.receive and one.receive.start_ns < one.send.end_ns for one in trace.messages)
    assert spans_of(ordered(trace).roots) == spans_of(call_tree(trace))
    for options in ({}, {"limit": None}, {"detail": "kernel"}):
        check_diagram(sequence(trace, **options))
    assert len(sent(sequence(trace, limit=None))) > 0
    assert calltree(trace)
    assert sorted(one.count for one in crossings(trace)) == sorted(one.count for one in crossings(true))
    run = RunFolder(Path("run"), {}, trace, [])
    assert shown_html(run)
    for format in FORMATS.keys() - {"perfetto"}:
        assert b"".join(export(run, format))
    assert diff_text(run, RunFolder(Path("other"), {}, true, []), lang="en")
