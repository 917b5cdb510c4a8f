"""Users' updates of open calls are kept until the calls end, within bounds."""

import inspect
from pathlib import Path

import pytest
from opentelemetry import trace

from tracellm import probe
from tracellm.probes.recording import Recording
from tracellm.probes.spans import builder
from tracellm.probes.spans.builder import PendingUpdates
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder


@probe
def tells(times: int) -> None:
    """Set the same attribute so many times, and add an event each time."""
    for number in range(times):
        trace.get_current_span().set_attribute("number", number)
        trace.get_current_span().set_attribute(names.CODE_LINE, number)
        trace.get_current_span().add_event(f"event {number}")


def test_the_last_value_counts(tmp_path: Path):
    """An attribute set again has its new value, as in OpenTelemetry; standard attributes are not replaced."""
    with Recording(tmp_path, catalog=()) as recording:
        tells(3)
    [span] = RunFolder.open(tmp_path).trace.named("tells")
    assert span.attributes["number"] == 2
    assert span.attributes[names.CODE_LINE] == inspect.unwrap(tells).__code__.co_firstlineno
    assert [event.name for event in span.events] == ["event 0", "event 1", "event 2"]
    assert recording.stats["problems"] == []


def test_what_is_too_much_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first of too many updates are dropped and counted."""
    monkeypatch.setattr(builder, "_MOST_UPDATES", 4)
    with Recording(tmp_path, catalog=()) as recording:
        tells(3)
    [span] = RunFolder.open(tmp_path).trace.named("tells")
    assert [event.name for event in span.events] == ["event 1", "event 2"]
    assert recording.stats["problems"] == [
        "5 attributes, events or links of unfinished calls were dropped: there were too many"
    ]


def test_what_is_told_of_calls_that_are_over_does_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    """The oldest update of any call is dropped first, and ended calls keep none."""
    monkeypatch.setattr(builder, "_MOST_UPDATES", 3)
    kept = PendingUpdates()
    for call in (1, 2, 3):
        kept.keep(call, ({"n": call}, None, None))
    assert list(kept.of[2]) == [({"n": 2}, None, None)]
    kept.forget(2)
    for call in (4, 5):
        kept.keep(call, ({}, None, None))
    assert (list(kept.of), kept.dropped) == ([3, 4, 5], 1)
