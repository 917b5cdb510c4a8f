"""Tests of the numbers of tokens in streams."""

import asyncio
from typing import Any

import pytest

from tests.server.app import CHAT, COMPLETIONS, HELLO, App, events
from tests.server.fake import FakeEngine


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("forced", "options", "in_each", "at_end"),
    [
        (False, None, False, False),
        (False, {"include_usage": True}, False, True),
        (False, {"include_usage": True, "continuous_usage_stats": True}, True, True),
        (True, None, False, True),
        (True, {"include_usage": False}, False, True),
        (True, {"continuous_usage_stats": True}, True, True),
    ],
)
def test_usage_in_a_stream(
    runner: asyncio.Runner, path: str, forced: bool, options: dict[str, Any] | None, in_each: bool, at_end: bool
) -> None:
    """The last chunk has the usage if the request or --enable-force-include-usage asks for it, as in vLLM 0.11.1."""
    app = App.make(runner, FakeEngine(), enable_force_include_usage=forced)
    prompt = {"messages": HELLO} if path == CHAT else {"prompt": "Hello"}
    chunks = events(app.post(path, {**prompt, "stream": True, "stream_options": options}))
    usages = [chunk.get("usage") is not None for chunk in chunks]
    assert len(usages) > 2
    assert set(usages[:-1]) == {in_each}
    assert usages[-1] == at_end
    assert (chunks[-1]["choices"] == []) == at_end
