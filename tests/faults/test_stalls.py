"""One caller's expensive requests: the server answers others meanwhile, and refuses what exceeds a limit by name."""

import asyncio
import json
from typing import Any

import pytest

from tests.faults.http import CHAT, COMPLETIONS, Answer, ask, run, stream

pytestmark = pytest.mark.usefixtures("lives_on")


EXPENSIVE: dict[str, tuple[dict[str, Any], int]] = {
    "choices": ({"choice": [f"choice {7919 * i} abc" for i in range(30_000)]}, 200),
    "a repeated repetition": ({"regex": "(a{150}){150}"}, 200),
}
"""Constraints that take long to compile, and the status of their requests."""


@pytest.mark.parametrize("name", EXPENSIVE)
def test_others_are_answered_while_a_grammar_is_compiled(server, name):
    """While one caller's grammar is compiled, /health answers and another caller's stream goes on."""
    constraint, status = EXPENSIVE[name]

    async def work() -> tuple[Answer, int, int]:
        other = await stream(server.port, {"prompt": "a", "max_tokens": 400, "ignore_eos": True})
        body = {"prompt": "a", "max_tokens": 5, "structured_outputs": constraint}
        expensive = asyncio.create_task(ask(server.port, "POST", COMPLETIONS, body))
        num_answers, num_events, events = 0, 0, other.events()
        while not expensive.done():
            assert (await ask(server.port, "GET", "/health")).status == 200
            num_answers += 1
            num_events += await anext(events, None) is not None
        async for _ in events:
            pass
        await other.close()
        return await expensive, num_answers, num_events

    answer, num_answers, num_events = run(work())
    assert answer.status == status, answer.body[:300]
    assert num_answers > 5
    assert num_events > 5


MANY: dict[str, tuple[str, dict[str, Any], str]] = {
    "messages": (CHAT, {"messages": [{"role": "user"}] * 10_001}, "`messages` may hold at most 10000 items"),
    "biases": (
        COMPLETIONS,
        {"logit_bias": {str(i): "x" for i in range(40_000)}},
        "`logit_bias` may hold at most 32768",
    ),
    "stop tokens": (COMPLETIONS, {"stop_token_ids": [1] * 140_000}, "`stop_token_ids` may hold at most 131072"),
    "bad words": (COMPLETIONS, {"bad_words": ["word " * 4000]}, "`bad_words` may hold at most 16384 characters"),
    "a text": ("/tokenize", {"prompt": "a " * 300_000}, "may have at most 500000 characters, got 600000"),
    "a message": (
        "/tokenize",
        {"prompt": None, "messages": [{"role": "user", "content": "a" * 600_000}]},
        "500000 characters",
    ),
    "fields": (COMPLETIONS, {f"f{i}": 1 for i in range(1001)}, "at most 1000 fields, got 1003"),
    "wrong prompts": (COMPLETIONS, {"prompt": [{}] * 40_000}, "`prompt`: must be a text"),
    "wrong tools": (CHAT, {"tools": [1] * 300_000}, "`tools[0]`: "),
}


@pytest.mark.parametrize("name", MANY)
def test_a_body_of_many_items_is_refused(server, name):
    """A body with very many items is refused with a short message that names the field."""
    path, fields, reason = MANY[name]
    good = {"messages": [{"role": "user", "content": "a"}]} if path == CHAT else {"max_tokens": 1, "prompt": "a"}
    answer = run(ask(server.port, "POST", path, json.dumps(good | fields).encode()))
    assert answer.status == 400
    assert reason in answer.json()["error"]["message"]
    assert len(answer.body) < 1000
