"""An agent of Pydantic AI."""

import asyncio
from typing import Any

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.shown import INVENT, QUESTION, TOO_LONG, TOOLS, Person, answers_with_tools, error_of, report


def _agent(url: str, temperature: float = 0, name: str = "tiny", **options: Any) -> Agent[None, Any]:
    model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    return Agent(model, model_settings={"temperature": temperature, "seed": 1}, **options)


def chat(url: str) -> str:
    """Return the answer."""
    return _agent(url).run_sync(QUESTION).output


def stream(url: str) -> list[str]:
    """Return the pieces of the answer."""

    async def pieces() -> list[str]:
        async with _agent(url).run_stream(QUESTION) as run:
            return [text async for text in run.stream_text(delta=True, debounce_by=None)]

    return asyncio.run(pieces())


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(lambda: _agent(url).run_sync(TOO_LONG))


def structured(url: str) -> dict[str, Any]:
    """Return an object."""
    return _agent(url, temperature=1, output_type=NativeOutput(Person)).run_sync(INVENT).output.model_dump()


def tools(url: str) -> list[Any]:
    """Return the answers of an agent with tools."""
    agent = _agent(url, name="tiny-tools", tools=TOOLS)
    return answers_with_tools(lambda question: agent.run_sync(question).output)


report(chat=chat, stream=stream, error=error, structured=structured, tools=tools)
