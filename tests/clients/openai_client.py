"""OpenAI's client, in the version that the other clients use."""

from typing import Any

from openai import OpenAI

from tests.clients.shown import INVENT, QUESTION, TOO_LONG, Person, error_of, report


def _client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _options(question: str) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": question}], "temperature": 0}


def chat(url: str) -> str | None:
    """Return the answer."""
    return _client(url).chat.completions.create(**_options(QUESTION)).choices[0].message.content


def stream(url: str) -> list[str]:
    """Return the pieces of the answer."""
    with _client(url).chat.completions.stream(**_options(QUESTION)) as events:
        return [event.delta for event in events if event.type == "content.delta"]


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(lambda: _client(url).chat.completions.create(**_options(TOO_LONG)))


def structured(url: str) -> list[dict[str, Any]]:
    """Return the objects of 12 seeds; `parse` raises if one is not finished."""
    completions = [
        _client(url).chat.completions.parse(
            **_options(INVENT) | {"temperature": 1}, max_tokens=400, seed=seed, response_format=Person
        )
        for seed in range(12)
    ]
    return [parsed.model_dump() for one in completions if (parsed := one.choices[0].message.parsed)]


report(chat=chat, stream=stream, error=error, structured=structured)
