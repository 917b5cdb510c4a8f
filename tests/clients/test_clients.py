"""Clients from PyPI and npm against served models. Each script beside this file runs one of them.

The Python clients have an environment of their own (scripts/install-clients.sh). The packages of the client for
Node.js are in tests/clients/node_modules (`npm ci --prefix tests/clients`).
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.node import require_node
from tests.server.process import Server

ROOT = Path(__file__).parents[2]
NODE_MODULES = Path(__file__).parent / "node_modules"
USUAL = ROOT / ".venv-clients" / "bin" / "python"

PYTHON_CLIENTS = ["openai", "litellm", "langchain", "llama_index", "instructor", "pydantic_ai", "llm"]
CLIENTS = [*PYTHON_CLIENTS, "ai_sdk"]
ERRORS = {
    "openai": "BadRequestError",
    "litellm": "ContextWindowExceededError",
    "langchain": "OpenAIInvalidRequestError",
    "llama_index": "BadRequestError",
    "instructor": "InstructorRetryException",
    "pydantic_ai": "ModelHTTPError",
    "llm": "BadRequestError",
    "ai_sdk": "AI_APICallError",
}
"""The class of each client's error for a refused request."""

ANSWER = "The capital of France is Paris."
WITH_TOOLS = [
    {"calls": [["get_weather", "Lisbon"]], "answer": "The weather in Lisbon is sunny."},
    {"calls": [["multiply", 23, 47]], "answer": "23 * 47 = 1081."},
    {"calls": [], "answer": ANSWER},
]
"""The calls of the tools and the answers to `shown.TOOL_QUESTIONS`."""

Run = Callable[[str, str], Any]
"""Function from the name of a client and a part of its script to the part's result."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Server of `tiny`, shared by all clients."""
    with Server.start("--dtype=float32", "--num-gpu-blocks-override=512", "--max-num-seqs=8") as server:
        yield server


@pytest.fixture(scope="module")
def tools_server() -> Iterator[Server]:
    """Server of `tiny-tools`, shared by all clients."""
    options = ("--enable-auto-tool-choice", "--tool-call-parser=hermes", "--num-gpu-blocks-override=512")
    with Server.start("tiny-tools", "--dtype=float32", *options) as server:
        yield server


@pytest.fixture(scope="module")
def run(server: Server, tools_server: Server) -> Run:
    """Run of the clients' scripts, each once; a part that failed fails the test with the script's output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OPENAI_"))}

    @cache
    def done(client: str) -> subprocess.CompletedProcess[str]:
        command = [*(_node(client) if client == "ai_sdk" else _python(client)), server.url, tools_server.url]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    def result(client: str, part: str) -> Any:
        process = done(client)
        results = json.loads(process.stdout.splitlines()[-1]) if process.returncode == 0 else {}
        assert part in results, f"{part} failed:\n{process.stderr[-5000:]}"
        return results[part]

    return result


def _python(client: str) -> list[str]:
    python = Path(os.environ.get("TRACELLM_CLIENTS_PYTHON", USUAL))
    if not python.exists():
        pytest.skip(f"there are no clients at {python}: scripts/install-clients.sh installs them")
    return [str(python), "-m", f"tests.clients.{client}_client"]


def _node(client: str) -> list[str]:
    node = require_node()
    if not NODE_MODULES.exists():
        pytest.skip("the AI SDK is not installed: npm ci --prefix tests/clients")
    return [node, str(NODE_MODULES.with_name(f"{client}_client.mjs"))]


@pytest.mark.parametrize("client", [*CLIENTS, "lm_eval"])
def test_a_client_gets_an_answer(client: str, run: Run):
    """A conversation gets the model's answer."""
    assert run(client, "chat") == ANSWER


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_a_stream(client: str, run: Run):
    """A stream has several pieces, which together are the answer."""
    pieces = [piece for piece in run(client, "stream") if piece]
    assert len(pieces) > 2
    assert "".join(pieces) == ANSWER


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_raises_its_own_error(client: str, run: Run):
    """Too long a prompt raises the client's own error, with the message of the server."""
    error = run(client, "error")
    assert error["types"][:1] == [ERRORS[client]], error["message"]
    assert "This model's maximum context length is 2048 tokens." in error["message"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_objects(client: str, run: Run):
    """Structured answers are finished objects of the asked form, each checked by the client itself."""
    shown = run(client, "structured")
    people = shown if isinstance(shown, list) else [shown]
    assert len(people) == (12 if client in ("openai", "instructor") else 1)
    for person in people:
        assert person.keys() == {"name", "age"}
        assert 0 <= person["age"] <= 120


@pytest.mark.parametrize("client", ["langchain", "llama_index", "pydantic_ai", "llm", "ai_sdk"])
def test_a_client_runs_its_loop_of_tools(client: str, run: Run):
    """A client's own loop calls the right tools, sends their results, and gets the answers made of them."""
    assert run(client, "tools") == WITH_TOOLS


def test_instructor_gets_the_arguments_of_a_tool(run: Run):
    """An object that instructor asks for as a forced call has the value from the question."""
    assert run("instructor", "tools") == {"city": "Lisbon"}


def test_litellm_takes_another_model(run: Run):
    """litellm's router sends too long a prompt to the model for long prompts."""
    assert run("litellm", "fallback") == "The large model answers."


def test_lm_eval_scores_the_model(run: Run):
    """lm-eval finds the right choices by log probabilities of prompts, and the right texts; `tiny` has learned them."""
    assert run("lm_eval", "scores") == {"choices": 1.0, "texts": 1.0}


def test_lm_eval_raises_an_error(run: Run):
    """lm-eval raises the status of a refused request."""
    error = run("lm_eval", "error")
    assert error["types"][0] == "HTTPError"
    assert error["message"].startswith("400 Client Error")
