"""Tests of the server against recorded answers of `vllm serve` 0.11.1: the same tokens, in the same JSON."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.app import FIXTURES, App, events, recorded_app

CASES = [json.loads(line) for line in (FIXTURES / "server-cases.jsonl").read_text(encoding="utf-8").splitlines()]
OURS = {"owned_by": "tracellm"}
"""Values that differ on purpose."""


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """The server with the model and the settings of the recording."""
    with asyncio.Runner() as runner, recorded_app(runner, {"max_model_len": None}) as app:
        yield app


def same(ours: Any, theirs: Any, where: str = "response") -> None:
    """Check that two JSON values are equal, up to rounding of floats, ids and times."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), where
        assert ours.keys() == theirs.keys(), where
        for key, value in theirs.items():
            same(ours[key], OURS.get(key, value), f"{where}.{key}")
    elif isinstance(theirs, list):
        if where.endswith(".permission"):
            return
        assert isinstance(ours, list), where
        assert len(ours) == len(theirs), where
        for index, value in enumerate(theirs):
            same(ours[index], value, f"{where}[{index}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4), where
    elif not (isinstance(theirs, str) and theirs.startswith("<")):
        assert ours == theirs, where


def joined(first: Any, second: Any, key: str = "") -> Any:
    """Merge two events into the one that a server sends if both are ready at once."""
    if key == "choices":
        return [joined(*both) for both in zip(first, second, strict=True)]
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: joined(first.get(key), second.get(key), key) for key in first | second}
    if (isinstance(first, list) and isinstance(second, list)) or (key in ("text", "content") and first and second):
        return first + second
    return first if second is None else second


def same_stream(ours: list[Any], theirs: list[Any]) -> None:
    """Check that two streams have equal events; one of ours may merge several of theirs."""
    remaining = iter(theirs)
    for number, event in enumerate(ours):
        expected: Any = next(remaining, None)
        while True:
            try:
                same(event, expected, f"events[{number}]")
                break
            except AssertionError:
                further = next(remaining, None)
                if not (further and further["choices"] and expected["choices"]):
                    raise
                expected = joined(expected, further)
    assert list(remaining) == []


def test_an_event_may_hold_what_came_together() -> None:
    """Two tokens in one event are the same stream; a different or missing token is not."""
    case = next(case for case in CASES if case["name"] == "chat with logprobs, streamed")
    first, second, *others = case["events"]
    same_stream([first, joined(second, others[0]), *others[1:]], case["events"])
    for wrong in (
        [first, *others],
        [first, joined(second, second), *others[1:]],
        [first, second],
        [*case["events"], second],
    ):
        with pytest.raises(AssertionError):
            same_stream(wrong, case["events"])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_response_is_that_of_vllm(app: App, case: dict[str, Any]) -> None:
    """Status, JSON keys, tokens, log probabilities, finish reasons and usage equal vLLM's."""
    if case["request"] is None:
        response = app.ask("GET", case["path"])
    else:
        response = app.post(case["path"], case["request"])
    assert response.status_code == case["status"], response.text
    if "events" in case:
        same_stream(events(response), case["events"])
    elif case["response"] is not None:
        same(response.json(), case["response"])
    else:
        error = response.json()["error"]
        assert error["code"] == case["status"]
        assert error["message"].endswith((".", "?", ")"))
        assert set(error) == {"message", "type", "param", "code"}
