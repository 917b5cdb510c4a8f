"""A collector, and a check that no test leaves a span current."""

import sys
from collections.abc import Iterator

import pytest

from tests.otel.collecting import Collecting, collecting


@pytest.fixture(autouse=True)
def nothing_is_current() -> Iterator[None]:
    """Check that no span is current after a test that imported OpenTelemetry."""
    yield
    trace = sys.modules.get("opentelemetry.trace")
    assert trace is None or trace.get_current_span() is trace.INVALID_SPAN


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    """A collector at the address in the standard variable."""
    with collecting() as state:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", state.endpoint)
        yield state
