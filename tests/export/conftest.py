"""What the tests of exports share: a browser, and the command in this process."""

from collections.abc import Iterator

import pytest

from tests.browser import Browser, require_browser
from tests.cli.conftest import command

__all__ = ["command"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, the same for all tests."""
    require_browser()
    with Browser() as browser:
        yield browser
