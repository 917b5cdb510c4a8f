"""A collector to send to; and no test leaves behind a span that another would find to be current, or an open file."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.otel.collecting import Collecting, collecting
from tracellm.probes.spans.tail import RecordTail


@pytest.fixture(autouse=True)
def nothing_is_current() -> Iterator[None]:
    """Nothing is current after a test; of a test that does not use OpenTelemetry nothing is known."""
    yield
    trace = sys.modules.get("opentelemetry.trace")
    assert trace is None or trace.get_current_span() is trace.INVALID_SPAN


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    """A collector, which the standard variable names."""
    with collecting() as state:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", state.endpoint)
        yield state


@pytest.fixture(autouse=True)
def closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test has read is closed at its end."""
    made: list[RecordTail] = []
    begin = RecordTail.__init__

    def _noted(self: RecordTail, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(RecordTail, "__init__", _noted)
    yield
    for files in made:
        files.never_ended()
