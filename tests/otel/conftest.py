"""A collector to send to; and no test leaves behind a span that another would find to be current."""

import sys
from collections.abc import Iterator

import pytest

from tests.otel.collecting import Collecting, collecting


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
