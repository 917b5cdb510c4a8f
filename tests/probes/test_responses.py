"""Tests of the spans of the Responses API: which calls of the server a response consists of."""

import asyncio
from pathlib import Path

import pytest

from tests.probes.tracing import outline, record
from tests.server.app import App
from tests.server.fake import FakeEngine
from tracellm.probes.catalog.engine import CATALOG
from tracellm.trace import names


def test_calls_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response is recorded like a chat completion: its HTTP request, prompt and generator; those after it, too."""
    monkeypatch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")

    def run() -> None:
        with asyncio.Runner() as runner:
            app = App.make(runner, FakeEngine())
            body = {"input": "Hello", "max_output_tokens": 2, "request_id": "mine"}
            app.post("/v1/responses", body)
            app.post("/v1/responses", body | {"stream": True, "request_id": "streamed"})
            app.ask("GET", "/v1/responses/mine")
            app.ask("POST", "/v1/responses/mine/cancel")

    lines = outline(record(tmp_path, run, CATALOG), names.HTTP_STATUS).splitlines()
    shown = [line for line in lines if "Responses" in line or "POST" in line or "GET" in line]
    assert shown == [
        "POST /v1/responses status_code=200",
        "  OpenAIServingResponses.create_responses",
        "    OpenAIServingResponses._preprocess_chat",
        "    OpenAIServingResponses._process_inputs",
        "    OpenAIServingResponses.responses_full_generator",
        "POST /v1/responses status_code=200",
        "  OpenAIServingResponses.create_responses",
        "    OpenAIServingResponses._preprocess_chat",
        "    OpenAIServingResponses._process_inputs",
        "  OpenAIServingResponses.responses_stream_generator",
        "GET /v1/responses/mine status_code=200",
        "  OpenAIServingResponses.retrieve_responses",
        "POST /v1/responses/mine/cancel status_code=400",
        "  OpenAIServingResponses.cancel_responses",
    ]
