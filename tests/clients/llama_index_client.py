"""LlamaIndex's `OpenAILike`."""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

from tests.clients.shown import INVENT, QUESTION, TOO_LONG, TOOLS, Person, answers_with_tools, error_of, report


def _model(url: str, temperature: float = 0, name: str = "tiny") -> OpenAILike:
    return OpenAILike(
        model=name,
        api_base=f"{url}/v1",
        api_key="none",
        temperature=temperature,
        additional_kwargs={"seed": 1},
        max_retries=0,
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
    )


def _messages(question: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=question)]


def chat(url: str) -> str | None:
    """Return the answer."""
    return _model(url).chat(_messages(QUESTION)).message.content


def stream(url: str) -> list[str]:
    """Return the pieces of the answer."""
    return [response.delta or "" for response in _model(url).stream_chat(_messages(QUESTION))]


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(lambda: _model(url).chat(_messages(TOO_LONG)))


def structured(url: str) -> dict[str, Any]:
    """Return an object."""
    return _model(url, temperature=1).as_structured_llm(Person).chat(_messages(INVENT)).raw.model_dump()


def tools(url: str) -> list[Any]:
    """Return the answers of an agent with tools."""

    async def answer(question: str) -> str:
        agent = FunctionAgent(tools=TOOLS, llm=_model(url, name="tiny-tools"))
        return str(await agent.run(question))

    return answers_with_tools(lambda question: asyncio.run(answer(question)))


report(chat=chat, stream=stream, error=error, structured=structured, tools=tools)
