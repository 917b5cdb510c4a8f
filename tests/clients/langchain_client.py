"""LangChain's `ChatOpenAI`."""

from typing import Any

from langchain_openai import ChatOpenAI

from tests.clients.shown import INVENT, QUESTION, TOO_LONG, Person, error_of, report


def _model(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="tiny", base_url=f"{url}/v1", api_key="none", max_retries=0, **{"temperature": 0} | options)


def chat(url: str) -> str:
    """Return the answer."""
    return _model(url).invoke(QUESTION).text


def stream(url: str) -> list[str]:
    """Return the pieces of the answer."""
    return [chunk.text for chunk in _model(url).stream(QUESTION)]


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(lambda: _model(url).invoke(TOO_LONG))


def structured(url: str) -> dict[str, Any]:
    """Return an object."""
    model = _model(url, temperature=1, seed=1).with_structured_output(Person, method="json_schema")
    return model.invoke(INVENT).model_dump()


report(chat=chat, stream=stream, error=error, structured=structured)
