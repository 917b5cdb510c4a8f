"""A server shared by all tests that leave it unchanged."""

from collections.abc import Iterator

import pytest

from tests.faults.http import get, idle, run
from tests.faults.processes import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that every test must leave alive, and without a request."""
    options = ["--shutdown-timeout=20", "--disable-uvicorn-access-log", "--max-request-bytes=1000000"]
    # In bfloat16 tokens can tie, and the number of concurrent requests then decides which is drawn.
    with Server(*options, "--dtype=float32") as server:
        yield server


@pytest.fixture
def lives_on(server: Server) -> Iterator[None]:
    """Check after the test that the server is healthy, and that no blocks are held."""
    yield
    assert get(server.port, "/health").status == 200
    run(idle(server.port))
