"""No test leaves a span behind that another would find to be current."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_is_current() -> Iterator[None]:
    """Nothing is current after a test; of a test that does not use OpenTelemetry nothing is known."""
    yield
    trace = sys.modules.get("opentelemetry.trace")
    assert trace is None or trace.get_current_span() is trace.INVALID_SPAN
