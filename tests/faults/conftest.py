"""One server for all tests that leave it as it was."""

from collections.abc import Iterator

import pytest

from tests.faults.http import get, idle, run
from tests.faults.processes import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that every test must leave alive, and without a request."""
    options = ["--shutdown-timeout=20", "--disable-uvicorn-access-log", "--max-request-bytes=1000000"]
    # In bfloat16 two tokens may be equally likely, and how many requests run at once decides which one it is.
    with Server(*options, "--dtype=float32") as server:
        yield server


@pytest.fixture
def lives_on(server: Server) -> Iterator[None]:
    """Afterwards the server is healthy, and nothing holds blocks."""
    yield
    assert get(server.port, "/health").status == 200
    run(idle(server.port))
