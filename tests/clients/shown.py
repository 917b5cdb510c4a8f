"""Parts shared by the scripts beside this file: the questions, the form of an answer, and the report that they print.

Each script runs one client of the server, in the environment of scripts/install-clients.sh and without tracellm:

    python -m tests.clients.litellm_client http://127.0.0.1:8000
"""

import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field

__all__ = ["FOLDER", "INVENT", "QUESTION", "TOO_LONG", "Person", "error_of", "report"]

QUESTION = "What is the capital of France?"
INVENT = "Invent a person."
TOO_LONG = "hello " * 3000
"""A prompt that is longer than the context of `tiny`."""
FOLDER = tempfile.TemporaryDirectory()
"""Folder for a client's own files, deleted at the end of the script."""


class Person(BaseModel):
    """The form of a structured answer; `tiny` was not trained on JSON, and ends a text only where it must."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    """Return the error that a call raises: the names of its class and base classes, and its message."""
    try:
        answer = call()
    except Exception as error:
        return {"types": [kind.__name__ for kind in type(error).__mro__], "message": str(error)}
    return {"types": [], "message": f"it raised nothing, and returned {answer!r}"}


def report(**parts: Callable[[str], Any]) -> None:
    """Call each part with the server's address, the script's argument, and print the results as one JSON object.

    The traceback of a part that failed goes to stderr, and its result is missing.
    """
    results = {}
    for name, part in parts.items():
        try:
            results[name] = part(sys.argv[1])
        except Exception:
            traceback.print_exc()
    print(json.dumps(results))  # noqa: T201
