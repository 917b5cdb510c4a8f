"""Shared fixtures of the report tests: one browser for all of them."""

from collections.abc import Iterator

import pytest

from tests.browser import Browser, require_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, the same for all tests."""
    require_browser()
    with Browser() as browser:
        yield browser
