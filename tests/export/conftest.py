"""Shared fixtures of the export tests: a browser, and the command in this process."""

from collections.abc import Iterator

import pytest

from tests.browser import Browser, require_browser
from tests.cli.conftest import command

__all__ = ["command"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, shared by all tests."""
    require_browser()
    with Browser() as browser:
        yield browser
