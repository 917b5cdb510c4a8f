"""Recording time is a category of its own in the call tree, steps, page and comparison."""

import io
import re
from typing import Any

import pytest

from tests.report.synthetic import a_run, a_run_folder, shown_html
from tests.report.traces import Calls
from tracellm.report.calltree import calltree
from tracellm.report.console import Console
from tracellm.report.diff import diff_text
from tracellm.report.facts.recording_time import generation, recording_by_step, share_of_generation
from tracellm.report.steps_table import steps_table
from tracellm.report.tree.nodes import Node, call_tree, walk
from tracellm.report.wording.quantities import percent
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN


def of(recording: Any) -> dict[str, Any]:
    """Return the attributes of a call with this recording time."""
    return {names.RECORDING_DURATION: recording}


def nested(recording: Any, inside: int = 0) -> dict[str, Node]:
    """Return nodes of a 3 µs call with a 1 µs call inside, by name, with these nanoseconds of recording time."""
    calls = Calls()
    with calls("A.f", **of(recording)):
        calls.leaf("A.g", **of(inside))
    return {node.span.name: node for node in walk(call_tree(calls.trace()))}


def test_own_time_is_without_recording():
    """A call's own time is its duration without its callees and the recording."""
    nodes = nested(600, 100)
    assert [(node.total_ns, node.own_ns, node.recording_ns) for node in nodes.values()] == [
        (3000, 1400, 600),
        (1000, 900, 100),
    ]


@pytest.mark.parametrize("damaged", [-5, 2500, 10**12, 2**70, True, "x", None])
def test_a_damaged_recording_time_is_no_error(damaged: object):
    """An invalid recording time leaves the sum of own time and recording time unchanged."""
    node = nested(damaged)["A.f"]
    assert node.own_ns >= 0
    assert node.recording_ns >= 0
    assert node.own_ns + node.recording_ns == 2000


def recorded() -> list[Span]:
    """Return spans of a run with recording time in each step and its scheduler call."""
    spans = a_run()
    for span in spans:
        if span.name == STEP_SPAN:
            span.attributes = span.attributes | {names.RECORDING_DURATION: 20_000}
        elif span.name == "Scheduler.schedule":
            span.attributes = span.attributes | {names.RECORDING_DURATION: 1}
    return spans


def test_the_recording_time_of_steps():
    """A step's recording time is that of all calls in it."""
    trace = Trace(recorded())
    steps = trace.named(STEP_SPAN)
    assert recording_by_step(trace).keys() == {step.span_id for step in steps}
    assert all(nanoseconds >= 20_000 for nanoseconds in recording_by_step(trace).values())
    assert recording_by_step(Trace(a_run())) == {}


@pytest.mark.parametrize(
    ("lang", "column", "words"), [("en", "recording", "for recording"), ("zh", "记录", "其中记录")]
)
def test_reports_show_it_where_there_is_some(lang: str, column: str, words: str):
    """Each report shows recording time as a category, if there is any."""
    with_it, without = a_run_folder(recorded()), a_run_folder(a_run())
    for trace, has in ((with_it.trace, True), (without.trace, False)):
        assert calltree(trace, lang=lang).splitlines()[0].endswith(column) is has
        assert steps_table(trace, lang=lang).splitlines()[0].endswith(column) is has
    page, plain = (shown_html(run, lang) for run in (with_it, without))  # type: ignore[arg-type]
    assert words in page
    assert words not in plain
    assert column in diff_text(with_it, without, lang=lang)
    assert column not in diff_text(without, without, lang=lang)


def two_steps() -> Trace:
    """Steps from 20 to 30 and from 40 to 60 µs, in a run of 100 µs.

    Recording takes 6 µs in the steps, 3 µs before them, and 8 µs in a call from 50 to 90 µs.
    """
    calls = [
        ("LLM.__init__", 0, 15, 3),
        (STEP_SPAN, 20, 30, 2),
        (STEP_SPAN, 40, 60, 4),
        ("EngineCore.shutdown", 50, 90, 8),
        ("Worker.shutdown", 90, 100, 0),
    ]
    attributes = [{names.RECORDING_DURATION: recording * 1000} if recording else {} for *_, recording in calls]
    return Trace(
        Span(name, "1" * 32, f"{number:016x}", None, start * 1000, end * 1000, attributes[number])
        for number, (name, start, end, _) in enumerate(calls)
    )


def test_generation_is_from_the_first_step_to_the_end_of_the_last():
    """Generation lasts from the first step's start to the last step's end; without steps there is none."""
    assert generation(two_steps()) == (20_000, 60_000)
    assert generation(Trace([])) is None


def test_the_recordings_share_of_generation():
    """The share counts the calls that began in generation, and their recording time within it."""
    run = {"probes": {"per_call_us": 1.0}}
    # 3 calls of 1 µs, 2 + 4 µs in the steps, a quarter of the 8 µs
    assert share_of_generation(two_steps(), run) == pytest.approx((3 + 6 + 2) / 40)
    assert share_of_generation(two_steps(), {"probes": {"per_call_us": 0.0}}) == pytest.approx(8 / 40)
    assert share_of_generation(two_steps(), {"probes": {}}) is None
    assert share_of_generation(two_steps(), {}) is None
    assert share_of_generation(Trace([]), run) is None


@pytest.mark.parametrize(
    ("lang", "words"),
    [("en", "0.4% of the run, {} of generation, longest write"), ("zh", "占整个运行的 0.4%、占生成阶段的 {}、")],
)
def test_shares_are_of_the_run_and_of_generation(lang: Any, words: str):
    """Console and page show the recording's share of the run and of generation."""
    run = a_run_folder(recorded())
    share = share_of_generation(run.trace, run.manifest)
    assert share is not None
    assert 0.004 < share < 1
    words = words.format(percent(share))
    stream = io.StringIO()
    Console(lang, stream=stream).finish(run.manifest, None, run.trace)
    assert words.replace(" ", "") in re.sub(r"\s", "", stream.getvalue())
    assert words in shown_html(run, lang)
    stream = io.StringIO()
    Console(lang, stream=stream).finish(run.manifest)  # its records are not converted
    assert "0.4%" in stream.getvalue()
    assert percent(share) not in stream.getvalue()


def test_lines_hold_their_width_with_one_column_more():
    """No line of the call tree exceeds the width with the additional column."""
    assert max(map(len, calltree(Trace(recorded()), width=80).splitlines())) <= 80
