"""Requests that left the queues before a step: every report says why, as far as the requests' spans do."""

import io

import pytest

from tests.report.synthetic import a_run
from tracellm.report.console import Console
from tracellm.report.step_text import step_text
from tracellm.report.steps_table import steps_table
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN, steps

WORDS = {
    "stop": "request 1 aborted: a stop string was found in the text",
    "abort": "request 1 aborted: cancelled, or not read any more",
    None: "request 1 aborted: cancelled, or a stop string was found",
}
"""Words by finish reason; None: the recording lacks the request's end."""


def aborted(reason: str | None) -> list[Span]:
    """Return a run whose request 1 left the queues before step 6 for this reason."""
    spans = a_run()
    step = next(span for span in spans if span.attributes.get(names.STEP_INDEX) == 6 and span.name == STEP_SPAN)
    step.attributes[names.STEP_ABORTED] = ["1"]
    life = next(span for span in spans if span.attributes.get(names.REQUEST_ID) == "1")
    del life.attributes[names.GEN_AI_FINISH_REASONS]
    if reason is not None:
        life.attributes[names.GEN_AI_FINISH_REASONS] = [reason]
    life.end_ns = step.start_ns
    return spans


@pytest.mark.parametrize("reason", WORDS)
def test_reports_name_the_reason(reason: str | None) -> None:
    """The table of steps, one step and the console have the same reason."""
    spans = aborted(reason)
    trace = Trace(spans)
    assert " ".join(steps_table(trace, lang="en", width=200).split()).count(WORDS[reason]) == 1
    stream = io.StringIO()
    console = Console("en", stream)
    for span in sorted(spans, key=lambda span: span.end_ns):
        console(span)
    console.finish({"status": "finished"})
    assert WORDS[reason] in " ".join(stream.getvalue().split())
    change = {"stop": "Stopped, a stop string was found: 1.", "abort": "Cancelled: 1.", None: "Aborted: 1."}[reason]
    assert change in step_text(trace, 6, lang="en", width=100)


def test_a_later_request_may_have_the_same_id() -> None:
    """An abort has the reason of the request that was submitted before, not of a later one with its id."""
    spans = aborted("stop")
    later = next(span for span in a_run() if span.attributes.get(names.REQUEST_ID) == "1")
    later.span_id, later.start_ns, later.end_ns = "f" * 16, later.start_ns + 10**12, later.end_ns + 10**12
    later.attributes[names.GEN_AI_FINISH_REASONS] = ["abort"]
    assert steps(Trace([*spans, later]))[5].abort_reasons == {"1": "stop"}


def test_a_retry_before_the_report_of_the_abort() -> None:
    """An abort has the reason of the request that ended before its step, not of one that has begun since."""
    spans = aborted("stop")
    [step] = [span for span in spans if span.attributes.get(names.STEP_INDEX) == 6]
    retry = next(span for span in a_run() if span.attributes.get(names.REQUEST_ID) == "1")
    retry.span_id, retry.start_ns, retry.end_ns = "f" * 16, step.start_ns, step.end_ns + 1
    retry.attributes[names.GEN_AI_FINISH_REASONS] = ["abort"]
    assert steps(Trace([*spans, retry]))[5].abort_reasons == {"1": "stop"}
