"""The `llm` package, whose models are listed in a file."""

import json
import os
from pathlib import Path
from typing import Any

import llm

from tests.clients.shown import FOLDER, INVENT, QUESTION, TOO_LONG, TOOLS, Person, answers_with_tools, error_of, report

os.environ["LLM_USER_PATH"] = FOLDER.name


def _model(url: str, name: str = "tiny") -> llm.Model:
    entry = {
        "model_id": "mine",
        "model_name": name,
        "api_base": f"{url}/v1",
        "supports_schema": True,
        "supports_tools": True,
    }
    Path(FOLDER.name, "extra-openai-models.yaml").write_text(json.dumps([entry]))  # JSON is YAML
    return llm.get_model("mine")


def chat(url: str) -> str:
    """Return the answer."""
    return _model(url).prompt(QUESTION, temperature=0, stream=False).text()


def stream(url: str) -> list[str]:
    """Return the pieces of the answer."""
    return list(_model(url).prompt(QUESTION, temperature=0))


def error(url: str) -> dict[str, Any]:
    """Return the error of too long a prompt."""
    return error_of(_model(url).prompt(TOO_LONG, temperature=0).text)


def structured(url: str) -> dict[str, Any]:
    """Return an object."""
    answer = _model(url).prompt(INVENT, schema=Person, temperature=1, seed=1, stream=False)
    return Person.model_validate_json(answer.text()).model_dump()


def tools(url: str) -> list[Any]:
    """Return the answers of chains of prompts."""
    model = _model(url, "tiny-tools")
    return answers_with_tools(lambda question: model.chain(question, tools=TOOLS, options={"temperature": 0}).text())


report(chat=chat, stream=stream, error=error, structured=structured, tools=tools)
