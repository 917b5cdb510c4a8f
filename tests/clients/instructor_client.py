"""instructor, with the server's JSON schemas."""

from typing import Any

import instructor
from openai import OpenAI
from pydantic import BaseModel

from tests.clients.shown import INVENT, QUESTION, TOO_LONG, TOOL_QUESTIONS, Person, error_of, report


def _client(url: str, mode: instructor.Mode = instructor.Mode.JSON_SCHEMA) -> instructor.Instructor:
    return instructor.from_openai(OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=mode)


def _options(question: str) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_retries": 0}


def chat(url: str) -> str:
    """Return the answer."""
    return _client(url).create(**_options(QUESTION), response_model=None).choices[0].message.content


def stream(url: str) -> list[str]:
    """Return the pieces of the answer."""
    chunks = _client(url).create(**_options(QUESTION), response_model=None, stream=True)
    return [chunk.choices[0].delta.content or "" for chunk in chunks]


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(lambda: _client(url).create(**_options(TOO_LONG), response_model=Person))


def structured(url: str) -> list[dict[str, Any]]:
    """Return the objects of 12 seeds; an unfinished one raises."""
    options = _options(INVENT) | {"temperature": 1, "max_tokens": 400, "response_model": Person}
    return [_client(url).create(**options, seed=seed).model_dump() for seed in range(12)]


class GetWeather(BaseModel):
    """Get the current weather in a city."""

    city: str


def tools(url: str) -> dict[str, Any]:
    """Return the arguments of a forced call."""
    options = _options(TOOL_QUESTIONS[0]) | {"model": "tiny-tools", "response_model": GetWeather}
    return _client(url, instructor.Mode.TOOLS).create(**options).model_dump()


report(chat=chat, stream=stream, error=error, structured=structured, tools=tools)
