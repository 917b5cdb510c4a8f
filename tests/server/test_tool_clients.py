"""Tests of tool calls with OpenAI's own client: forced calls of a real model, and a whole tool loop."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import httpx2 as httpx
import openai
import pytest
from pydantic import BaseModel

from tests.server.app import App
from tests.server.process import Server
from tests.server.test_tool_calls import AUTO, Speaker
from tracellm.engine.config.arg_utils import EngineArgs


class Weather(BaseModel):
    """The weather in a city."""

    city: Literal["Paris", "Rome", "北京"]
    days: Literal[1, 2, 3]


class Clock(BaseModel):
    """The time."""


TOOLS: list[Any] = [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Clock)]
KINDS: dict[str, type[BaseModel]] = {"Weather": Weather, "Clock": Clock}
NAMED: Any = {"type": "function", "function": {"name": "Weather"}}
ASKS = (
    "<think>\nParis.\n</think>\n\nI ask.\n"
    '<tool_call>\n{"name": "Weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
)
"""An answer with reasoning, content and a call."""
QUESTION: list[Any] = [{"role": "user", "content": "How is the weather in Paris?"}]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    """Client of a server with the bundled model."""
    options = ("--max-num-seqs", "8", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with (
        Server.start(*options) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("seed", range(3))
def test_forced_calls(client: openai.OpenAI, choice: Any, seed: int) -> None:
    """A forced call of a model that was not trained for tools has valid arguments, the same at once and as a stream."""
    arguments: dict[str, Any] = {"model": "tiny", "messages": QUESTION, "tools": TOOLS, "tool_choice": choice}
    arguments |= {"seed": seed, "max_tokens": 100, "parallel_tool_calls": False}
    completion = client.chat.completions.create(**arguments)
    with client.chat.completions.stream(**arguments) as stream:
        streamed = stream.get_final_completion().choices[0]
    complete = completion.choices[0]
    assert complete.finish_reason == streamed.finish_reason == ("stop" if choice is NAMED else "tool_calls")
    calls: list[Any] = complete.message.tool_calls or []
    again: list[Any] = streamed.message.tool_calls or []
    assert calls
    assert [call.function.model_dump() for call in calls] == [
        call.function.model_dump(exclude={"parsed_arguments"}) for call in again
    ]
    for call in calls:
        assert call.id.startswith("chatcmpl-tool-")
        KINDS[call.function.name].model_validate_json(call.function.arguments)


def test_auto_without_a_call(client: openai.OpenAI) -> None:
    """A model that does not call a tool answers as without tools."""
    arguments: dict[str, Any] = {"model": "tiny", "messages": QUESTION, "temperature": 0, "max_tokens": 8}
    assert client.chat.completions.create(**arguments, tools=TOOLS).choices[0].message.content == (
        client.chat.completions.create(**arguments).choices[0].message.content
    )


def test_tool_loop() -> None:
    """OpenAI's client streams a call with reasoning, sends its result, and gets the answer."""
    with asyncio.Runner() as runner:
        speaker = Speaker()
        app = App.make(runner, speaker, engine_args=EngineArgs(reasoning_parser="qwen3"), **AUTO)
        runner.run(_loop(app, speaker))


async def _loop(app: App, speaker: Speaker) -> None:
    http_client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app.app))
    async with openai.AsyncOpenAI(base_url="http://server/v1", api_key="-", http_client=http_client) as client:
        speaker.answer = ASKS
        arguments: dict[str, Any] = {"model": "tiny", "tools": TOOLS}
        async with client.chat.completions.stream(messages=QUESTION, **arguments) as stream:
            choice = (await stream.get_final_completion()).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "\n\nI ask.\n"
        assert choice.message.model_extra is not None
        assert choice.message.model_extra["reasoning_content"] == "\nParis.\n"
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert call.function.parsed_arguments == Weather(city="Paris", days=2)

        speaker.answer = "It is mild."
        result = {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"degrees": 12})}
        messages: list[Any] = [*QUESTION, choice.message, result]
        answer = (await client.chat.completions.create(messages=messages, **arguments)).choices[0]
        assert (answer.message.content, answer.finish_reason) == ("It is mild.", "stop")
        assert '{"degrees": 12}' in speaker.requests[-1]["prompt"]
