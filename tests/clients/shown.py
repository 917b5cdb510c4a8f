"""Parts shared by the scripts beside this file: questions, tools, the form of an answer, the report that they print.

Each script runs one client, in the environment of scripts/install-clients.sh and without tracellm. The first server has
`tiny`, the second `tiny-tools`:

    python -m tests.clients.langchain_client http://127.0.0.1:8000 http://127.0.0.1:8001
"""

import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field

__all__ = [
    "FOLDER",
    "INVENT",
    "QUESTION",
    "TOOLS",
    "TOOL_QUESTIONS",
    "TOO_LONG",
    "Person",
    "answers_with_tools",
    "error_of",
    "report",
]

QUESTION = "What is the capital of France?"
INVENT = "Invent a person."
TOO_LONG = "hello " * 3000
"""A prompt that is longer than the context of `tiny`."""
TOOL_QUESTIONS = ["What is the weather in Lisbon?", "What is 23 times 47?", QUESTION]
"""Questions for `tiny-tools`: one for each of `TOOLS`, and one that needs none."""
FOLDER = tempfile.TemporaryDirectory()
"""Folder for a client's own files, deleted at the end of the script."""


class Person(BaseModel):
    """The form of a structured answer; `tiny` was not trained on JSON, and ends a text only where it must."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


_calls: list[Any] = []


def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    _calls.append(["get_weather", city])
    return "sunny"


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    _calls.append(["multiply", a, b])
    return a * b


TOOLS = [get_weather, multiply]


def answers_with_tools(answer: Callable[[str], Any]) -> list[Any]:
    """Return the calls of `TOOLS` and the answer for each of `TOOL_QUESTIONS`.

    Args:
        answer: function from a question to the client's answer, after the client's own loop of calls.
    """
    shown = []
    for question in TOOL_QUESTIONS:
        _calls.clear()
        text = answer(question)
        shown.append({"calls": list(_calls), "answer": text})
    return shown


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    """Return the error that a call raises: the names of its class and base classes, and its message."""
    try:
        answer = call()
    except Exception as error:
        return {"types": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    return {"types": [], "message": f"it raised nothing, and returned {answer!r}"}


def report(**parts: Callable[[str], Any]) -> None:
    """Call each part with a server's address, and print the results as one JSON object.

    The addresses are the script's arguments. The part `tools` has the second.

    The traceback of a part that failed goes to stderr, and its result is missing.
    """
    results = {}
    for name, part in parts.items():
        try:
            results[name] = part(sys.argv[2 if name == "tools" else 1])
        except Exception:
            traceback.print_exc()
    print(json.dumps(results))  # noqa: T201
