"""Tests of the variables and messages of a chat template."""

import asyncio
from typing import Any

import pytest

from tests.server.app import CHAT, HELLO, App
from tests.server.fake import FakeEngine

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.tool_calls }};{% endfor %}{{ reasoning_effort }},{{ enable_thinking }}"
)


def prompt_of(runner: asyncio.Runner, template: str, body: dict[str, Any]) -> str:
    """Return the prompt that the engine gets for a chat."""
    engine = FakeEngine()
    app = App.make(runner, engine, chat_template=template)
    answer = app.post(CHAT, {"messages": HELLO, "max_tokens": 1, "return_token_ids": True, **body})
    assert answer.status_code == 200, answer.text
    prompt = engine.tokenizer.decode(answer.json()["prompt_token_ids"])
    assert isinstance(prompt, str)
    return prompt


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, ","),
        ({"reasoning_effort": "none"}, "none,False"),
        ({"reasoning_effort": "minimal"}, "minimal,True"),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}, "low,False"),
    ],
)
def test_the_reasoning_effort(runner: asyncio.Runner, body: dict[str, Any], expected: str) -> None:
    """The effort and whether to think are variables of the template; a request's own variables override them."""
    assert prompt_of(runner, TEMPLATE, body) == f"user:;{expected}"


@pytest.mark.parametrize(
    ("arguments", "expected"), [('{"a": 1}', "{'a': 1}"), ("[1]", "[1]"), ("", "{}"), (None, "{}")]
)
def test_arguments_of_earlier_calls(runner: asyncio.Runner, arguments: str | None, expected: str) -> None:
    """Arguments may be any JSON, or absent."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [*HELLO, {"role": "assistant", "tool_calls": [call]}]
    template = "{{ messages[1].tool_calls[0].function.arguments }}"
    assert prompt_of(runner, template, {"messages": messages}) == expected


def test_arguments_that_are_no_json(runner: asyncio.Runner) -> None:
    """Arguments that cannot be read are refused, also if they are nested too deeply."""
    app = App.make(runner, FakeEngine())
    for arguments in ("{bad", "[" * 5000):
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        answer = app.post(CHAT, {"messages": [*HELLO, {"role": "assistant", "tool_calls": [call]}]})
        assert answer.status_code == 400
        assert "tool_calls[0] must have a `function`" in answer.json()["error"]["message"]


def test_the_role_of_a_developer(runner: asyncio.Runner) -> None:
    """A template without the role `developer` gets these messages as those of the system."""
    body = {"messages": [{"role": "developer", "content": "Be brief."}, *HELLO]}
    assert prompt_of(runner, TEMPLATE, body) == "system:;user:;,"
    own = "{{ messages[0].role == 'developer' }}"
    assert prompt_of(runner, own, body) == "True"


@pytest.mark.parametrize(("options", "status"), [({}, 200), (None, 200), ({"include_usage": False}, 400)])
def test_stream_options_without_a_stream(runner: asyncio.Runner, options: dict[str, Any] | None, status: int) -> None:
    """Without a stream only empty options are accepted, as by vLLM."""
    body = {"messages": HELLO, "max_tokens": 1, "stream_options": options}
    assert App.make(runner, FakeEngine()).post(CHAT, body).status_code == status
