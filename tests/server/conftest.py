"""Fixtures of the server's tests."""

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of a file's tests."""
    with asyncio.Runner() as runner:
        yield runner
