"""Tests of the server's pooling routes against those of `vllm serve` 0.11.1, and with OpenAI's client.

Vectors and scores equal the recorded ones within 1e-3; errors have the same type and code, and begin with its words.
"""

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import numpy as np
import openai
import pytest

from tests.fixtures.record_pooling_cases import SERVERS
from tests.server.app import FIXTURES, MODEL, App, recorded_app
from tests.server.test_errors_of_vllm import words_of

RECORDED = [json.loads(line) for line in (FIXTURES / "pooling-cases.jsonl").read_text(encoding="utf-8").splitlines()]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "last": {"runner": "pooling"},
    "mean": {"runner": "pooling", "pooler_config": {"pooling_type": "MEAN", "normalize": False}},
    "tokens": {"runner": "pooling", "enable_chunked_prefill": False},
    "generate": {},
}
"""Arguments of the engine that stand for the recorded options."""
DIFFERENT = {
    "an unknown format": "Input should be 'float' or 'base64'",  # vLLM has bytes, too
    "input of a number": "must be a text, a list of texts, a list of token ids",  # vLLM lists five errors
}
"""Words that differ on purpose."""


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, App]]:
    """The name of a recorded server, and ours with its settings."""
    with asyncio.Runner() as runner, recorded_app(runner, ARGUMENTS[request.param]) as app:
        yield request.param, app


def numbers(value: Any, dtype: str = "<f4") -> np.ndarray:
    """Return the values of a result, which may be in base64."""
    return np.frombuffer(base64.b64decode(value), dtype) if isinstance(value, str) else np.array(value)


def check_response(case: dict[str, Any], ours: dict[str, Any]) -> None:
    """Check all fields, but ids and times; vectors and scores within 1e-3."""
    theirs = case["response"]
    assert ours.keys() == theirs.keys()
    assert ours["usage"] == theirs["usage"]
    assert ours["id"].partition("-")[0] == theirs["id"].partition("-")[0]
    assert ours.get("object") == theirs.get("object")
    dtypes = {"big": ">f4", "bfloat16": "<u2"}
    dtype = dtypes.get(case["body"].get("endianness")) or dtypes.get(case["body"].get("embed_dtype"), "<f4")
    (field,) = {"data", "results"} & theirs.keys()
    assert len(ours[field]) == len(theirs[field])
    for our, their in zip(ours[field], theirs[field], strict=True):
        assert our.keys() == their.keys()
        for name, value in their.items():
            if name in ("embedding", "data", "score", "relevance_score"):
                found, expected = numbers(our[name], dtype), numbers(value, dtype)
                assert found.shape == expected.shape
                tolerance = 1 if dtype == "<u2" else 1e-3  # the bits of a bfloat16
                np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
            else:
                assert our[name] == value


def test_responses_are_those_of_vllm(server: tuple[str, App]) -> None:
    """Every recorded request to a server with these settings has vLLM's response."""
    name, app = server
    cases = [case for case in RECORDED if case["server"] == name]
    assert len(cases) >= 4
    for case in cases:
        response = app.post(case["path"], case["body"])
        error = case["response"].get("error")
        if error is None:
            assert response.status_code == 200, (case["name"], response.text)
            check_response(case, response.json())
            continue
        # vLLM 0.11.1 sends the error of a missing API with the status 200.
        assert response.status_code == error["code"], case["name"]
        found, words = response.json()["error"], DIFFERENT.get(case["name"], words_of(error["message"])).rstrip(".")
        assert (found["type"], found["code"]) == (error["type"], error["code"]), case["name"]
        if error["type"] == "Bad Request":  # the field comes first
            assert words in found["message"], case["name"]
        else:
            assert found["message"].startswith(words), (case["name"], found["message"])


def test_openai_client(server: tuple[str, App]) -> None:
    """`client.embeddings.create` returns floats by way of base64, or floats, and raises the server's errors."""
    name, app = server

    async def ask() -> tuple[Any, Any]:
        transport = httpx.ASGITransport(app=app.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server/v1") as http:
            client = openai.AsyncOpenAI(base_url="http://server/v1", api_key="none", http_client=http)
            texts = ["Hello, who are you?", "The capital of France is"]
            as_bytes = await client.embeddings.create(model=MODEL, input=texts)
            as_floats = await client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
            return as_bytes, as_floats

    if name == "generate":
        with pytest.raises(openai.BadRequestError, match="The model does not support Embeddings API"):
            app.run(ask())
        return
    for response in app.run(ask()):
        (recorded,) = (
            c for c in RECORDED if c["server"] == ("last" if name == "tokens" else name) and c["name"] == "texts"
        )
        for found, expected in zip(response.data, recorded["response"]["data"][:2], strict=True):
            np.testing.assert_allclose(found.embedding, expected["embedding"], rtol=0, atol=1e-3)
        assert response.usage.prompt_tokens == response.usage.total_tokens > 0


def test_each_difference_is_one() -> None:
    """Every case that is listed as different is among the recorded ones."""
    assert {*DIFFERENT} <= {case["name"] for case in RECORDED}
