"""Requests with `use_beam_search` against the responses of `vllm serve` 0.11.1."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.app import App
from tracellm import AsyncLLM
from tracellm.engine.entrypoints.openai.protocol import CompletionRequest

_FIXTURE = Path(__file__).parents[1] / "fixtures" / "beam-search.jsonl"
RECORDED = [json.loads(line) for line in _FIXTURE.read_text(encoding="utf-8").splitlines()]
REQUESTS = [case for case in RECORDED if "path" in case]
_OF_A_RUN = {"id", "created"}
"""Fields with other values in each run."""


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """The server with the model and the settings of the recording."""
    with asyncio.Runner() as runner:
        engine = AsyncLLM(dtype="float32", max_model_len=256, num_gpu_blocks_override=512)
        try:
            yield App.make(runner, engine, served_model_name=["tiny"])
        finally:
            engine.shutdown()


def bodies(text: str) -> list[Any]:
    """Return the response, or the events of a stream."""
    if not text.startswith("data: "):
        return [json.loads(text)]
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


def same(ours: Any, theirs: Any) -> bool:
    """Compare what vLLM sent with what we send: equal, and numbers close; fields that are null may be absent."""
    if isinstance(theirs, dict):
        return all(
            same(ours.get(name), value) for name, value in theirs.items() if name not in _OF_A_RUN and value is not None
        )
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, float):
        return bool(ours == pytest.approx(theirs, abs=1e-3))
    return bool(ours == theirs)


@pytest.mark.parametrize("case", REQUESTS, ids=[str(number) for number in range(len(REQUESTS))])
def test_responses_equal_vllms(app: App, case: dict[str, Any]) -> None:
    """Outputs, log probabilities, usage and events are vLLM's; an error has its words first."""
    response = app.post(case["path"], case["body"])
    assert response.status_code == case["status"], response.text
    if case["status"] >= 400:
        ours, theirs = response.json()["error"], json.loads(case["response"])["error"]
        assert (ours["type"], ours["code"]) == (theirs["type"], theirs["code"])
        assert ours["message"].startswith(theirs["message"].rstrip("."))
        return
    ours, theirs = bodies(response.text), bodies(case["response"])
    assert same(ours, theirs), f"\n{ours}\n{theirs}"


def test_a_search_ends_with_its_caller(app: App) -> None:
    """When the caller leaves, the requests of all beams are aborted."""

    serving, states = app.app.state.openai_serving_completion, app.engine.output_processor.request_states
    request = CompletionRequest.model_validate({"prompt": "Hello", "use_beam_search": True, "n": 4, "max_tokens": 200})

    async def leave() -> None:
        task = asyncio.create_task(serving.create_completion(request))
        while not states:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while states:
            await asyncio.sleep(0.01)

    app.run(leave())


def test_log_probabilities_beside_the_prompt(app: App) -> None:
    """With `echo` the log probabilities of a beam's prompt are null, as a search computes none."""
    body = {"prompt": "a", "use_beam_search": True, "n": 2, "max_tokens": 3, "echo": True, "logprobs": 1}
    response = app.post("/v1/completions", body)
    assert response.status_code == 200, response.text
    for choice in response.json()["choices"]:
        numbers = choice["logprobs"]["token_logprobs"]
        assert numbers[0] is None
        assert all(isinstance(number, float) for number in numbers[-3:])
