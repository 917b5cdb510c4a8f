"""Tests of `/v1/responses` against recordings of `vllm serve`: the same answers, events and refusals.

Version 0.11.1 is the measure, and 0.32.0 for what it lacks or gets wrong.
"""

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.app import FIXTURES, App, recorded_app
from tests.server.test_errors_of_vllm import words_of
from tracellm.engine.entrypoints.openai.protocol import DeltaMessage
from tracellm.engine.entrypoints.openai.responses.streaming_events import StreamEvent, StreamingEventProcessor
from tracellm.engine.entrypoints.openai.tool_protocol import DeltaFunctionCall, DeltaToolCall

PATH = "/v1/responses"
RECORDED = [json.loads(line) for line in (FIXTURES / "responses.jsonl").read_text(encoding="utf-8").splitlines()]
EVENTS = [json.loads(line) for line in (FIXTURES / "response-events.jsonl").read_text(encoding="utf-8").splitlines()]
DIFFERENT = {
    # vLLM lists an error for each of some thirty types, each with the words of pydantic
    "an unknown item": "Unsupported input item type: riddle (input[0]).",
    "text format of XML": "Input should be 'text', 'json_object' or 'json_schema'",
    "no schema": "Field required: a format of type json_schema has a `schema`",
    "an unknown tool": "Input should be 'function'",
    "a schema that is none": "Invalid type: shape",  # vLLM names no field
    "a tool without a name": "Field required: `tools[0].name` is missing",
}
"""Words that differ on purpose."""
OTHER_TYPES = {"an unknown item"}
LATER_ONLY = {"cache_write_tokens", "presence_penalty", "frequency_penalty", "kv_transfer_params", "ec_transfer_params"}
"""Fields of 0.32 that OpenAI's API does not have."""
UNCOMPARED = {
    *("created_at", "id", "item_id", "call_id", "previous_response_id", "sequence_number"),
    "cached_tokens",  # depends on the requests before
}


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """The server with the model and the settings of the recording."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
        with recorded_app(runner, {}) as app:
            yield app


@pytest.fixture(scope="module")
def stored(app: App) -> str:
    """Id of the response that the recordings call STORED."""
    return str(app.post(PATH, RECORDED[0]["body"]).json()["id"])


def assert_same(ours: Any, theirs: Any, *, version: str, place: str = "") -> None:
    """Check that ours has all that theirs has; what is empty in theirs may be missing."""
    if isinstance(theirs, dict) and theirs:
        assert isinstance(ours, dict), place
        for key, value in theirs.items():
            key = {"schema_": "schema"}.get(key, key)  # 0.11.1 sends the name in Python
            if key in UNCOMPARED | LATER_ONLY:
                continue
            if key == "tool_choice" and version != "0.11.1" and value == "none":  # 0.32, without tools
                value = "auto"
            if (
                key in ("status", "incomplete_details")
                and ours.get("status") == "incomplete"
                and not (version == "0.32.0" and "object" in theirs)
            ):  # 0.11.1 calls every answer completed, and 0.32 every item
                continue
            assert_same(ours.get(key), value, version=version, place=f"{place}.{key}")
    elif isinstance(theirs, list) and theirs:
        assert isinstance(ours, list), place
        assert len(ours) == len(theirs), place
        for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(our, their, version=version, place=f"{place}[{index}]")
    elif isinstance(theirs, float):
        assert math.isclose(ours, theirs, abs_tol=1e-3), place
    else:
        assert ours == theirs or (not ours and not theirs), place


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of a stream with one delta for several tokens: vLLM joins those that come at once."""
    found: list[dict[str, Any]] = []
    for event in events:
        if found and "delta" in event and event["type"] == found[-1]["type"]:
            more = {name: found[-1][name] + event[name] for name in ("delta", "logprobs") if name in event}
            found[-1] = found[-1] | more
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("case", RECORDED, ids=[f"{case['version']} {case['name']}" for case in RECORDED])
def test_an_answer_is_that_of_vllm(app: App, stored: str, case: dict[str, Any]) -> None:
    """Fields, texts, token counts, events and refusals are vLLM's."""
    text = "" if case["body"] is None else json.dumps(case["body"])
    content = text.replace("STORED", stored).replace("REPEAT", "Hello " * 1500).encode()
    headers = {"Content-Type": "application/json"} if content else {}
    response = app.ask(case["method"], case["path"].replace("STORED", stored), content=content, headers=headers)
    assert response.status_code == case["status"], response.text
    if "events" in case:
        parts = [event.split("\n") for event in response.text.split("\n\n") if event]
        ours = [json.loads(data.removeprefix("data: ")) for _, data in parts]
        assert [first for first, _ in parts] == [f"event: {event['type']}" for event in ours]
        assert [event["sequence_number"] for event in ours] == [*range(len(ours))]
        assert [event["type"] for event in joined(ours)] == [event["type"] for event in joined(case["events"])]
        assert_same(joined(ours), joined(case["events"]), version=case["version"])
    elif case["status"] == 200:
        assert_same(response.json(), case["response"], version=case["version"])
    else:
        ours, theirs = response.json()["error"], case["response"]["error"]
        assert ours["code"] == theirs["code"]
        if case["name"] not in OTHER_TYPES:
            assert ours["type"] == theirs["type"]
        words = words_of(theirs["message"].partition(" (parameter=")[0])
        assert DIFFERENT.get(case["name"], words).rstrip(".") in ours["message"]


def test_each_difference_is_one() -> None:
    """Every case that is listed as different is among the recorded ones."""
    assert {*DIFFERENT, *OTHER_TYPES} <= {case["name"] for case in RECORDED}


def delta_of(case: dict[str, Any]) -> DeltaMessage:
    """Return a delta of the recording."""
    calls = [
        DeltaToolCall(index=index, id=call_id, function=DeltaFunctionCall(name=name, arguments=arguments))
        for index, call_id, name, arguments in case.get("calls", ())
    ]
    return DeltaMessage(reasoning=case.get("reasoning"), content=case.get("content"), tool_calls=calls)


@pytest.mark.parametrize("case", EVENTS, ids=range(len(EVENTS)))
def test_events_are_those_of_vllm(case: dict[str, Any]) -> None:
    """A message's deltas become the events of vLLM 0.32, numbered in order, and items that match them."""
    processor, events = StreamingEventProcessor(), list[StreamEvent]()
    for delta in case["deltas"]:
        events += processor.process(delta_of(delta), [])
    events += processor.close()
    ours = [json.loads(event.model_dump_json()) for event in events]
    assert [event["type"] for event in ours] == [event["type"] for event in case["events"]]
    assert_same(ours, case["events"], version="0.32.0")
    assert [event["sequence_number"] for event in ours] == [*range(len(ours))]
    done = [event["item"] for event in ours if event["type"] == "response.output_item.done"]
    assert done == [item.model_dump() for item in processor.output_items]
    ids = {item["id"]: place for place, item in enumerate(done)}
    assert all(ids[event["item_id"]] == event["output_index"] for event in ours if "item_id" in event)
