"""Tests of `/v1/responses` with an engine whose answers the tests choose: items, streams, conversations, background."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2 as httpx
import pytest

from tests.server.app import App
from tests.server.fake import FakeEngine
from tests.server.test_tool_calls import AUTO, CALL, PARAMETERS, Speaker
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineGenerateError, InvalidRequestError
from tracellm.engine.entrypoints.openai.protocol import DeltaMessage
from tracellm.engine.entrypoints.openai.responses.protocol import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponsesRequest,
)
from tracellm.engine.entrypoints.openai.responses.store import ResponseStore
from tracellm.engine.entrypoints.openai.responses.streaming_events import StreamingEventProcessor
from tracellm.engine.entrypoints.openai.responses.utils import construct_input_messages
from tracellm.engine.entrypoints.openai.tool_protocol import DeltaFunctionCall, DeltaToolCall

PATH = "/v1/responses"
TOOLS = [
    {"type": "function", "name": "get_weather", "parameters": PARAMETERS},
    {"type": "function", "name": "get_time", "parameters": {"type": "object"}},
]
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}: {{ m.reasoning }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}]"
    "{% endfor %}"
)


@pytest.fixture(scope="module")
def speaker(runner: asyncio.Runner) -> Speaker:
    """Shared engine, as its tokenizer takes a moment to load."""
    return Speaker()


@pytest.fixture
def app(runner: asyncio.Runner, speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> App:
    """Server that stores responses, with parsers of calls and reasoning."""
    monkeypatch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
    speaker.reason = "stop"
    engine_args = EngineArgs(reasoning_parser="qwen3")
    return App.make(runner, speaker, engine_args=engine_args, chat_template=TEMPLATE, **AUTO)


@pytest.fixture
def slow_app(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> App:
    """Server that stores responses, with an engine that can stall."""
    monkeypatch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
    return App.make(runner, FakeEngine())


def sent(response: httpx.Response) -> list[Any]:
    """Return the events of a complete stream, whose numbers are in order."""
    assert response.headers["content-type"].startswith("text/event-stream")
    parts = [event.split("\ndata: ") for event in response.text.split("\n\n") if event]
    events = [json.loads(data) for _, data in parts]
    assert [first for first, _ in parts] == [f"event: {event['type']}" for event in events]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    return events


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items without their ids, which are random."""
    return [{name: part for name, part in item.items() if name not in ("id", "call_id")} for item in items]


def both(app: App, answer: str, reason: str = "stop", **fields: Any) -> dict[str, Any]:
    """Return the response, after comparing it with a stream's."""
    app.engine.answer, app.engine.reason = answer, reason
    body = {"input": "Hello", **fields}
    response = app.post(PATH, body)
    assert response.status_code == 200, response.text
    complete: dict[str, Any] = response.json()
    events = sent(app.post(PATH, body | {"stream": True}))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    streamed = events[-1]["response"]
    assert without_ids(streamed["output"]) == without_ids(complete["output"])
    assert streamed["status"] == complete["status"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == streamed["output"]
    for place, item in enumerate(done):
        deltas = [event["delta"] for event in events if "delta" in event and event["output_index"] == place]
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(deltas) == text
    return complete


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        ("Hi.", ["message"]),
        ("", []),
        ("<think>Hm.</think>Hi.", ["reasoning", "message"]),
        ("<think>Hm.", ["reasoning"]),
        (CALL, ["function_call"]),
        (f"Let me see.\n{CALL}", ["message", "function_call"]),
        (f"<think>Hm.</think>{CALL}{CALL}", ["reasoning", "function_call", "function_call"]),
    ],
)
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_items(app: App, answer: str, kinds: list[str], reason: str) -> None:
    """Reasoning, text and calls are items, the same in a stream; `max_output_tokens` cuts off only the last one."""
    response = both(app, answer, reason, tools=TOOLS)
    assert [item["type"] for item in response["output"]] == kinds
    status = "incomplete" if reason == "length" else "completed"
    assert response["status"] == status
    assert response["incomplete_details"] == ({"reason": "max_output_tokens"} if reason == "length" else None)
    assert [item["status"] for item in response["output"]] == ["completed"] * (len(kinds) - 1) + [status] * bool(kinds)


def test_calls(app: App) -> None:
    """A call has the function's name and arguments, and an id for its output; one alone if the request wants one."""
    (first, second) = both(app, CALL * 2, tools=TOOLS)["output"]
    assert (first["name"], first["arguments"]) == ("get_weather", '{"city": "Paris"}')
    assert first["call_id"] != second["call_id"]
    assert len(both(app, CALL * 2, tools=TOOLS, parallel_tool_calls=False)["output"]) == 1
    named = both(app, '{"city": "Rome"}', tools=TOOLS, tool_choice={"type": "function", "name": "get_weather"})
    assert (named["output"][0]["name"], named["output"][0]["arguments"]) == ("get_weather", '{"city": "Rome"}')
    assert app.engine.requests[-1]["params"].structured_outputs.json == PARAMETERS
    plain = both(app, CALL, tools=TOOLS, tool_choice="none")
    assert plain["output"][0]["content"][0]["text"] == CALL


def test_reasoning_left_out(app: App) -> None:
    """Without `include_reasoning` the reasoning is generated and left out."""
    assert [item["type"] for item in both(app, "<think>Hm.</think>Hi.", include_reasoning=False)["output"]] == [
        "message"
    ]


def test_a_continued_response(app: App) -> None:
    """The prompt has the stored conversation, its text and calls, but neither its reasoning nor its instructions."""
    app.engine.answer = f"<think>Hm.</think>I ask.{CALL}"
    first = app.post(PATH, {"input": "Hello", "instructions": "Be brief.", "tools": TOOLS}).json()
    assert app.engine.requests[-1]["prompt"] == "[system: Be brief.][user: Hello]"
    call_id = first["output"][-1]["call_id"]
    app.engine.answer = "Mild."
    output = [{"type": "function_call_output", "call_id": call_id, "output": "12 degrees"}]
    second = app.post(PATH, {"input": output, "previous_response_id": first["id"], "tools": TOOLS}).json()
    conversation = '[user: Hello][assistant: I ask.get_weather({"city": "Paris"})][tool: 12 degrees]'
    assert app.engine.requests[-1]["prompt"] == conversation
    app.post(PATH, {"input": "And now?", "previous_response_id": second["id"], "instructions": "Be long."})
    expected = f"[system: Be long.]{conversation}[assistant: Mild.][user: And now?]"
    assert app.engine.requests[-1]["prompt"] == expected
    assert app.ask("GET", f"{PATH}/{second['id']}").json() == second


def test_nothing_is_stored(app: App, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response with `store` false, or of a server without the variable, is not found later."""
    app.engine.answer = "Hi."
    response = app.post(PATH, {"input": "Hello", "store": False}).json()
    assert app.ask("GET", f"{PATH}/{response['id']}").status_code == 404
    monkeypatch.delenv("VLLM_ENABLE_RESPONSES_API_STORE")
    plain = App.make(runner, app.engine)
    response = plain.post(PATH, {"input": "Hello"}).json()
    assert plain.ask("GET", f"{PATH}/{response['id']}").status_code == 404
    refused = plain.post(PATH, {"input": "Hello", "background": True})
    assert refused.status_code == 400
    assert "VLLM_ENABLE_RESPONSES_API_STORE=1" in refused.json()["error"]["message"]


def test_bounds_of_the_store(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store drops the oldest responses when there are too many, or too large ones."""
    app.engine.answer = "Hi."
    monkeypatch.setattr(ResponseStore, "MAX_RESPONSES", 3)
    ids = [app.post(PATH, {"input": "Hello"}).json()["id"] for _ in range(5)]
    assert [app.ask("GET", f"{PATH}/{name}").status_code for name in ids] == [404, 404, 200, 200, 200]
    monkeypatch.setattr(ResponseStore, "MAX_SIZE", 500)
    large = app.post(PATH, {"input": "Hello" * 90}).json()["id"]
    assert [app.ask("GET", f"{PATH}/{name}").status_code for name in [*ids[2:], large]] == [404, 404, 404, 200]
    assert app.post(PATH, {"input": "Hi", "previous_response_id": ids[4]}).status_code == 404


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ("Hello", [{"role": "user", "content": "Hello"}]),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "Who?"}]}],
            [{"role": "user", "content": [{"type": "text", "text": "Who?"}]}],
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "data:a", "detail": "auto"}]}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:a"}}]}],
        ),
        (
            [
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I ask."}]},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "one"}]},
                {"type": "function_call_output", "call_id": "2", "output": "two"},
            ],
            [
                {
                    "role": "assistant",
                    "reasoning": "Hm.",
                    "content": [{"type": "text", "text": "I ask."}],
                    "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                        {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "one"}]},
                {"role": "tool", "tool_call_id": "2", "content": "two"},
            ],
        ),
        (
            [{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}],
            [{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}],
        ),
    ],
)  # fmt: skip
def test_messages_of_items(items: Any, messages: Any) -> None:
    """Items become messages of a chat request; those of an assistant's turn become one."""
    assert construct_input_messages(items) == messages


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "computer_call"}, "Unsupported input item type: computer_call (input[0])."),
        ({"type": "message", "content": "a"}, "input[0]: Field required: `role` is missing."),
        ({"role": "user", "content": 5}, "input[0].content must be text or a list of parts, got 5."),
        ({"role": "user", "content": [5]}, "input[0].content[0]: a part must have the type input_text, "),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "a"}]}, "needs an `image_url`"),
        ({"type": "function_call", "call_id": "1", "name": "f"}, "input[0]: `arguments` must be text, got None."),
        ({"type": "function_call_output", "output": "a"}, "input[0]: `call_id` must be text, got None."),
        ({"type": "reasoning", "content": "a"}, "input[0] must have a list of parts as `content`."),
    ],
)
def test_invalid_items(item: dict[str, Any], words: str) -> None:
    """The message names the item, and what is wrong with it."""
    with pytest.raises(InvalidRequestError) as raised:
        construct_input_messages([item])
    assert words in str(raised.value)


def test_chat_requests() -> None:
    """Parameters, formats, tools and efforts are those of a chat request with the same meaning."""
    schema = {"type": "object", "properties": {}}
    body = {
        **{"input": "Hello", "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["a"], "max_output_tokens": 7},
        **{"tools": TOOLS, "text": {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}},
        **{"include": ["message.output_text.logprobs"], "top_logprobs": 2, "reasoning": {"effort": "none"}},
    }
    request = ResponsesRequest.model_validate(body)
    chat = request.to_chat_request([{"role": "user", "content": "Hello"}])
    params = chat.to_sampling_params(7, {})
    assert (params.temperature, params.top_p, params.seed, params.stop) == (0.5, 0.9, 3, ["a"])
    assert (params.max_tokens, params.logprobs) == (7, 2)
    assert params.structured_outputs is not None
    assert params.structured_outputs.json == schema
    assert chat.reasoning_effort == "none"
    assert chat.tools is not None
    assert [tool.function.model_dump() for tool in chat.tools] == [
        {"name": tool["name"], "parameters": tool["parameters"], "description": None} for tool in TOOLS
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": [{"type": "web_search"}]}, "`tools[0].type`: Input should be 'function'"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "other tools are not supported"),
        ({"conversation": "conv_1"}, "continue a response by `previous_response_id`"),
        ({"input": [5]}, "Input should be a valid string or a list of items"),
        ({"input": []}, "The conversation is empty"),
        ({"max_output_tokens": 4, "input": "a " * 5000, "truncation": "disabled"}, "maximum context length"),
    ],
)
def test_refusals(app: App, fields: dict[str, Any], words: str) -> None:
    """A field for a feature that the server lacks is refused by name, and not ignored."""
    response = app.post(PATH, {"input": "Hello"} | fields)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]


def test_an_invalid_query(app: App) -> None:
    """A wrong parameter of a path is an error in OpenAI's format, too."""
    refused = app.ask("GET", f"{PATH}/resp_1?stream=true&starting_after=now")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "starting_after")


def test_tools_without_a_parser(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Tools to choose from need a parser, as in a chat request; vLLM returns the call as text."""
    response = App.make(runner, speaker).post(PATH, {"input": "Hello", "tools": TOOLS})
    assert response.status_code == 400
    assert "--enable-auto-tool-choice" in response.json()["error"]["message"]


@pytest.mark.parametrize(("requested", "max_tokens"), [(5, 5), (None, 1)])
def test_truncation(app: App, requested: int | None, max_tokens: int) -> None:
    """`truncation` auto keeps the last tokens of a long conversation, and room for the answer."""
    app.engine.answer = "Hi."
    limit = app.engine.model_config.max_model_len
    body = {"input": "a " * 300 + "the end", "truncation": "auto", "max_output_tokens": requested}
    assert app.post(PATH, body).status_code == 200
    (request,) = app.engine.requests[-1:]
    assert request["params"].max_tokens == max_tokens
    assert len(request["token_ids"]) == limit - max_tokens


def test_no_truncation(app: App) -> None:
    """`truncation` auto keeps all of a conversation that fits, however many tokens its answer may have."""
    app.engine.answer = "Hi."
    limit = app.engine.model_config.max_model_len
    for body in ({}, {"truncation": "auto", "max_output_tokens": limit}):
        assert app.post(PATH, {"input": "Hello", **body}).status_code == 200
    first, second = (request["token_ids"] for request in app.engine.requests[-2:])
    assert first == second


def test_a_call_that_ends_with_content_after_it() -> None:
    """If one delta ends a call and begins a message, the call's arguments are complete."""
    begun = DeltaToolCall(index=0, id="call-1", function=DeltaFunctionCall(name="f", arguments='{"x": '))
    ended = DeltaToolCall(index=0, function=DeltaFunctionCall(arguments="1}"))
    processor = StreamingEventProcessor()
    for delta in (DeltaMessage(tool_calls=[begun]), DeltaMessage(content=" Done.", tool_calls=[ended])):
        list(processor.process(delta, []))
    list(processor.close())
    call, message = processor.output_items
    assert isinstance(call, ResponseFunctionToolCall)
    assert isinstance(message, ResponseOutputMessage)
    assert call.arguments == '{"x": 1}'
    assert [part.text for part in message.content] == [" Done."]


# -- failures and the background --------------------------------------------------------------------------------------


def serving_of(app: App) -> Any:
    """Return the serving class of a server."""
    return app.app.state.openai_serving_responses


def test_a_stream_that_fails(slow_app: App) -> None:
    """A failure after the first token is the last event, from which OpenAI's client raises an error."""
    slow_app.engine.fails_after, slow_app.engine.failure = 2, EngineGenerateError("It is broken.")
    events = sent(slow_app.post(PATH, {"input": "Hello", "stream": True, "max_output_tokens": 5}))
    assert [event["type"] for event in events[-2:]] == ["response.output_text.delta", "error"]
    assert events[-1]["message"] == events[-1]["error"]["message"] == "It is broken."


def test_a_caller_who_leaves(slow_app: App) -> None:
    """The engine's request ends when the caller of a stream leaves."""

    async def leave() -> None:
        request = ResponsesRequest(input="Hello", stream=True, max_output_tokens=5, request_id="resp_left")
        events = await serving_of(slow_app).create_responses(request)
        assert isinstance(events, AsyncGenerator)
        for _ in range(5):
            await anext(events)
        await events.aclose()

    slow_app.run(leave())
    assert slow_app.engine.given_up == ["resp_left"]


def in_background(app: App, **fields: Any) -> dict[str, Any]:
    """Return the response to a request in the background."""
    response = app.post(PATH, {"input": "Hello", "background": True, "max_output_tokens": 5, **fields})
    assert response.status_code == 200, response.text
    queued: dict[str, Any] = response.json()
    return queued


def wait_until_done(app: App, response_id: str) -> dict[str, Any]:
    """Return the response once it is done."""

    async def wait() -> None:
        while not serving_of(app).store.get(response_id).is_done:
            await asyncio.sleep(0)

    app.run(wait())
    response: dict[str, Any] = app.ask("GET", f"{PATH}/{response_id}").json()
    return response


def test_background(slow_app: App) -> None:
    """A response in the background is queued at first, then retrieved, and then continued."""
    queued = in_background(slow_app)
    assert (queued["status"], queued["output"], queued["usage"]) == ("queued", [], None)
    done = wait_until_done(slow_app, queued["id"])
    assert (done["status"], done["output"][0]["content"][0]["text"]) == ("incomplete", "aaaaa")
    refused = slow_app.ask("POST", f"{PATH}/{queued['id']}/cancel")
    assert refused.json()["error"]["message"] == "Cannot cancel a synchronous response."
    assert slow_app.post(PATH, {"input": "b", "previous_response_id": queued["id"]}).status_code == 200


def test_cancelling(slow_app: App) -> None:
    """Cancelling ends the engine's request; until then the response is in progress, and cannot be continued."""
    slow_app.engine.stalls_after = 2
    name = in_background(slow_app)["id"]
    slow_app.run(slow_app.engine.stalled.wait())
    assert slow_app.ask("GET", f"{PATH}/{name}").json()["status"] == "in_progress"
    refused = slow_app.post(PATH, {"input": "b", "previous_response_id": name})
    assert f"Response with id '{name}' is in_progress" in refused.json()["error"]["message"]
    assert slow_app.ask("POST", f"{PATH}/{name}/cancel").json()["status"] == "cancelled"
    assert slow_app.engine.given_up == [name]
    assert slow_app.ask("GET", f"{PATH}/{name}").json()["status"] == "cancelled"


def test_cancelling_before_the_start(slow_app: App) -> None:
    """A response that is cancelled at once is cancelled, and its stream ends."""

    async def cancel() -> list[str]:
        request = ResponsesRequest(input="Hello", stream=True, background=True, request_id="resp_early")
        events = await serving_of(slow_app).create_responses(request)
        assert (await serving_of(slow_app).cancel_responses("resp_early")).status == "cancelled"
        return [event async for event in events]

    assert slow_app.run(cancel()) == []


def test_background_stream(slow_app: App) -> None:
    """The events of a stream in the background are those of a stream, and can be read again from a number on."""
    arguments = {"input": "Hello", "background": True, "stream": True, "max_output_tokens": 3}
    events = sent(slow_app.post(PATH, arguments))
    assert events[-1]["type"] == "response.completed"
    path = f"{PATH}/{events[0]['response']['id']}?stream=true"
    assert sent(slow_app.ask("GET", path)) == events
    again = slow_app.ask("GET", f"{path}&starting_after=3").text
    assert json.loads(again.partition("data: ")[2].partition("\n")[0]) == events[4]


def test_failing_in_the_background(slow_app: App) -> None:
    """A failure in the background is that of the response, and the last event of its stream."""
    slow_app.engine.fails_after, slow_app.engine.failure = 1, EngineGenerateError("It is broken.")
    failed = wait_until_done(slow_app, in_background(slow_app)["id"])
    assert (failed["status"], failed["error"]["message"]) == ("failed", "It is broken.")
    slow_app.engine.fails_after = 1
    arguments = {"input": "Hello", "background": True, "stream": True, "max_output_tokens": 3}
    last = sent(slow_app.post(PATH, arguments))[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")


def test_too_many_in_the_background(slow_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses in progress are never dropped from the store; too many are refused."""
    module = "tracellm.engine.entrypoints.openai.responses.serving"
    monkeypatch.setattr(f"{module}._MAX_UNFINISHED", 2)
    monkeypatch.setattr(ResponseStore, "MAX_RESPONSES", 1)
    slow_app.engine.stalls_after = 1
    names = [in_background(slow_app)["id"] for _ in range(2)]
    refused = slow_app.post(PATH, {"input": "Hello", "background": True})
    assert refused.status_code == 429
    assert "cancel" in refused.json()["error"]["message"]
    for name in names:
        assert slow_app.ask("POST", f"{PATH}/{name}/cancel").json()["status"] == "cancelled"


def test_a_stored_id_is_not_used_twice(slow_app: App) -> None:
    """A client's own id names one response; vLLM replaces it."""
    body = {"input": "Hello", "request_id": "mine", "max_output_tokens": 1}
    assert slow_app.post(PATH, body).json()["id"] == "mine"
    refused = slow_app.post(PATH, body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "request_id")
