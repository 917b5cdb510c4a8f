"""LangChain's `ChatOpenAI`."""

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.shown import INVENT, QUESTION, TOO_LONG, TOOLS, Person, answers_with_tools, error_of, report


def _model(url: str, **options: Any) -> ChatOpenAI:
    options = {"model": "tiny", "temperature": 0} | options
    return ChatOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, **options)


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


def tools(url: str) -> list[Any]:
    """Return the answers of a chain of calls."""
    bound = {function.name: function for function in map(tool, TOOLS)}
    model = _model(url, model="tiny-tools").bind_tools(list(bound.values()))

    def answer(question: str) -> str:
        messages: list[Any] = [HumanMessage(question), model.invoke(question)]
        while calls := messages[-1].tool_calls:
            messages += [bound[call["name"]].invoke(call) for call in calls]
            messages.append(model.invoke(messages))
        return messages[-1].text

    return answers_with_tools(answer)


report(chat=chat, stream=stream, error=error, structured=structured, tools=tools)
