"""Tests of refused requests: the right status and OpenAI's JSON, and a server that still works."""

import asyncio
import json
from typing import Any

import httpx2 as httpx
import pytest

from tests.server.app import CHAT, COMPLETIONS, HELLO, RESPONSES, App, events
from tests.server.fake import FakeEngine
from tracellm.engine.config.errors import EngineDeadError, EngineGenerateError
from tracellm.engine.entrypoints.openai.protocol import CompletionRequest

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def engine(runner: asyncio.Runner) -> FakeEngine:
    """Shared fake engine, as its tokenizer takes a moment to load."""
    return FakeEngine()


@pytest.fixture
def app(runner: asyncio.Runner, engine: FakeEngine) -> App:
    """A server with a working engine."""
    engine.errored, engine.fails_after, engine.stalls_after = False, None, None
    engine.requests.clear()
    engine.given_up.clear()
    return App.make(runner, engine)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the response's error, after checking its status and OpenAI's form."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert "Traceback" not in error["message"]
    return error


BODIES = {
    "nothing": (b"", "Field required: the body is empty"),
    "half": (b'{"prompt": "a', "line 1, column 12"),
    "a list": (b"[1]", "must be a JSON object, got a list"),
    "text": (b'"prompt"', "must be a JSON object, got a str"),
    "deep": (b"[" * 40_000, "nested more than 100 deep"),
    "deep but closed": (b'{"prompt":' * 500 + b"1" + b"}" * 500, "nested more than 100 deep"),
    "latin-1": ('{"prompt": "é"}'.encode("latin-1"), "not UTF-8 (byte 12)"),
    "utf-16": ('{"prompt": "a"}'.encode("utf-16"), "not UTF-8 (byte 0)"),
    "not a number": (b'{"prompt": "a", "temperature": NaN}', "NaN is no number in JSON"),
    "infinity": (b'{"prompt": "a", "temperature": -Infinity}', "-Infinity is no number in JSON"),
    "a number beyond floats": (b'{"prompt": "a", "temperature": 1e999}', "`temperature` must be a number"),
    "a number of 5000 digits": (b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}", "digits"),
    "half a surrogate pair": (rb'{"prompt": "\ud800"}', "half a surrogate pair"),
    "half a surrogate pair in a key": (rb'{"prompt": "a", "\uDFFF": 1}', "half a surrogate pair"),
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"prompt": "a", "x": [' + b",".join([b"{}"] * 50_000) + b"]}",
            "it has 50,002 opening brackets, and at most",
        ),
        (
            b'{"prompt": "a", "x": {' + b",".join(b'"%d": 1' % i for i in range(100_000)) + b"}}",
            "it has 100,002 colons, and at most 100,000 are read",
        ),
        (b'{"prompt": [' + b",".join([b"1"] * 500_010) + b"]}", "it has 500,009 commas, and at most 500,000 are read"),
    ],
    ids=["objects", "keys", "numbers"],
)
def test_a_body_with_too_many_values(app: App, body: bytes, expected: str) -> None:
    """A body that would take the server's time is refused before it is parsed, with the limit."""
    assert expected in error_of(app.post(COMPLETIONS, body), 400)["message"]


def test_a_length_that_is_far_too_large(app: App) -> None:
    """A Content-Length that will not be read is refused before the body arrives."""

    async def never():
        raise AssertionError("the body was read")
        yield b""

    headers = {"Content-Type": "application/json", "Content-Length": str(1 << 40)}
    error = error_of(app.ask("POST", COMPLETIONS, content=never(), headers=headers), 413)
    assert "--max-request-bytes" in error["message"]


def test_a_list_of_callers_is_cut_in_messages(app: App) -> None:
    """An error and a warning have the beginning of a long list only."""
    error = error_of(app.post(COMPLETIONS, {"prompt": "a", "logit_bias": {"a": 1}}), 400)
    with pytest.warns(UserWarning, match=r"`stop_token_ids` a list of 100000 can") as caught:
        app.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1, "stop_token_ids": [99_999] * 100_000})
    assert len(str(caught[0].message)) < 500
    assert len(error["message"]) < 500


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_usable_json(app: App, name: str) -> None:
    """A body that is not usable JSON is a 400 that describes the problem."""
    body, expected = BODIES[name]
    assert expected in error_of(app.post(COMPLETIONS, body), 400)["message"]


FIELDS = [
    ({"prompt": None}, None, "Either prompt or prompt_embeds must be provided"),
    ({"prompt": {"a": 1}}, "prompt", "a list of token ids"),
    ({"prompt": ["a", 1]}, "prompt", "a list of token ids"),
    ({"prompt": [[]]}, None, "please provide at least one prompt"),
    ({"prompt": [[1], []]}, None, "prompt cannot be empty"),
    ({"prompt": [99_999]}, None, "out of vocabulary"),
    ({"prompt": [10**30], "echo": True}, None, "out of vocabulary"),
    ({"prompt": "word " * 200}, None, "maximum context length is 128 tokens. However, your request has 202"),
    ({"prompt": "word " * 100_000}, None, "maximum context length is 128 tokens. However, your request has at least"),
    ({"max_tokens": -1}, "max_tokens", "at least 1"),
    ({"max_tokens": 10**40}, "max_tokens", "is too large: 1000000"),
    ({"n": 10**9}, "n", "`n`"),
    ({"n": 1025}, "n", "Send several requests"),
    ({"prompt": ["a"] * 1025}, "n", "Send several requests"),
    ({"stop": ["a"] * 1025}, "stop", "at most 1024 strings"),
    ({"stop": ["x" * 100_000, ""]}, "stop", "none of them empty"),
    ({"temperature": "hot"}, "temperature", "got 'hot'"),
    ({"top_p": 2}, "top_p", "(0, 1]"),
    ({"seed": 2**63}, "seed", "less than"),
    ({"priority": 2**63}, "priority", "less than"),
    ({"logit_bias": {"word": 1}}, "logit_bias", "token ids"),
    ({"logprobs": 21}, "logprobs", "at most 20"),
    ({"request_id": "x" * 257}, "request_id", "256 characters"),
    ({"truncate_prompt_tokens": 1000}, "truncate_prompt_tokens", "cannot be greater than max_length=128"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "an integer >= 1 or -1, got 0"),
    ({"suffix": "!"}, None, "suffix is not currently supported"),
    ({"use_beam_search": True, "n": 11}, "logprobs", "Requested sample logprobs of 22, which is greater than"),
    ({"use_beam_search": True, "n": 0}, "n", "n must be at least 1, got 0."),
    ({"cache_salt": ""}, "cache_salt", "non-empty string"),
    ({"best_of": 2}, None, "best_of"),
    ({"logits_processors": ["os.system"]}, None, "logits_processors"),
    ({"stop_token_ids": [-1] * 10**5}, "stop_token_ids", "a list of 100000"),
    ({"allowed_token_ids": [10**6] * 10**5}, "allowed_token_ids", "a list of 100000"),
    ({"prompt": [10**4000]}, None, "out of vocabulary"),
    ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "needs a `schema`"),
    ({"guided_regex": "a", "guided_choice": ["b"]}, None, "one kind of structured outputs constraint"),
    ({"guided_json": {}, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
     "response_format", "keep one of them"),
    ({"guided_regex": "("}, "guided_regex", "unclosed group"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs", "unclosed group"),
    ({"stream": True, "top_p": 2}, "top_p", "(0, 1]"),
    ({"stream": True, "prompt": "word " * 200}, None, "maximum context length"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "expected"), FIELDS, ids=[str(fields)[:40] for fields, *_ in FIELDS])
def test_a_field_that_cannot_be(app: App, fields: dict[str, Any], param: str | None, expected: str) -> None:
    """A bad value is a 400 with a short message and its parameter, in a stream before it begins."""
    error = error_of(app.post(COMPLETIONS, {"prompt": "Hello", **fields}), 400)
    assert expected in error["message"]
    assert error["param"] == param
    assert len(error["message"]) < 2100


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"messages": []}, "conversation is empty"),
        ({"messages": "Hello"}, "`messages`: Input should be a valid list"),
        ({"messages": [{"content": "Hello"}]}, "messages[0] needs a `role`"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text parts"),
        ({"tools": [{"function": {}}]}, "`tools[0].function.name` is missing"),
        ({"tools": [{"function": {"name": "f"}}]}, "requires --enable-auto-tool-choice and --tool-call-parser"),
        ({"tool_choice": "auto"}, "When using `tool_choice`, `tools` must be set"),
        ({"chat_template": "{{ 1 }}"}, "--trust-request-chat-template"),
        ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "--trust-request-chat-template"),
        ({"chat_template_kwargs": {"tokenize": True}}, "unexpected chat template kwargs from request: {'tokenize'}"),
        ({"continue_final_message": True}, "Cannot set both `continue_final_message`"),
        ({"logprobs": True, "top_logprobs": -2}, "logprobs"),
        ({"max_completion_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"logprobs": True, "top_logprobs": 21, "stream": True}, "at most 20"),
    ],
    ids=str,
)
def test_a_conversation_that_cannot_be(app: App, fields: dict[str, Any], expected: str) -> None:
    """A bad conversation is a 400 that names the message or the field."""
    assert expected in error_of(app.post(CHAT, {"messages": HELLO, **fields}), 400)["message"]


@pytest.mark.parametrize("message", [{"content": "Hello"}, {"role": "user", "content": 5}], ids=str)
def test_a_message_without_its_form(app: App, message: dict[str, Any]) -> None:
    """The type of a message without a role or with a content of a number is that of invalid bodies, on every path."""
    for path, field in ((CHAT, "messages"), ("/tokenize", "messages"), (RESPONSES, "input")):
        assert error_of(app.post(path, {field: [message]}), 400)["type"] == "Bad Request"


def test_detokenizing_ids_of_no_token(app: App) -> None:
    """Ids that are not in the vocabulary have no text, as in vLLM, and ids that are none are refused."""
    tokens = app.post("/tokenize", {"prompt": "Hello", "add_special_tokens": False}).json()["tokens"]
    assert app.post("/detokenize", {"tokens": [99_999, *tokens, 2**32 - 1]}).json() == {"prompt": "Hello"}
    for token in (-1, 2**32, 10**30):
        error = error_of(app.post("/detokenize", {"tokens": [token]}), 400)
        assert (error["type"], error["param"]) == ("Bad Request", "tokens")


BAD_SCHEMA = {"type": "object", "properties": 3}
FORCED = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": BAD_SCHEMA}}],
    "tool_choice": "required",
}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {"structured_outputs": {"json": BAD_SCHEMA}}, "structured_outputs"),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": BAD_SCHEMA}}},
         "response_format"),
        (CHAT, FORCED, "tools"),
        (CHAT, {"structured_outputs": {"regex": "("}, "response_format": {"type": "text"}}, "structured_outputs"),
        (CHAT, {"structured_outputs": {"json": BAD_SCHEMA}, "guided_whitespace_pattern": " "}, "structured_outputs"),
        (RESPONSES, {"include": ["message.output_text.logprobs"], "top_logprobs": 21}, "top_logprobs"),
        (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens"),
        (RESPONSES, {"structured_outputs": {"json": BAD_SCHEMA}}, "structured_outputs"),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "a", "schema": BAD_SCHEMA}}}, "text"),
        (RESPONSES, FORCED | {"tools": [{"type": "function", "name": "f", "parameters": BAD_SCHEMA}]}, "tools"),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_names_a_field_of_the_request(app: App, path: str, fields: dict[str, Any], param: str) -> None:
    """The field is the caller's, also where the sampling parameter has another name; a message then says both."""
    error = error_of(app.post(path, {("input" if path == RESPONSES else "messages"): HELLO, **fields}), 400)
    assert error["param"] == param
    assert param in error["message"]


def test_a_null_template_is_no_template(runner: asyncio.Runner, engine: FakeEngine) -> None:
    """A null template is accepted, and the template of --chat-template is used."""
    app = App.make(runner, engine, chat_template="{{ messages[0].content }}{{ messages[0].content }}")
    tokens = app.post("/tokenize", {"messages": HELLO}).json()["tokens"]
    body = {"messages": HELLO, "chat_template_kwargs": {"chat_template": None}}
    assert app.post("/tokenize", body).json()["tokens"] == tokens


def test_a_body_that_is_too_large(runner: asyncio.Runner, engine: FakeEngine) -> None:
    """A body beyond --max-request-bytes is a 413, chunked or not, and the next request is served."""
    app = App.make(runner, engine, max_request_bytes=1000)

    async def pieces():
        for _ in range(20):
            yield b" " * 100

    assert "--max-request-bytes" in error_of(app.post(COMPLETIONS, b" " * 1001), 413)["message"]
    headers = {"Content-Type": "application/json"}
    error_of(app.ask("POST", COMPLETIONS, content=pieces(), headers=headers), 413)
    assert app.post(COMPLETIONS, {"prompt": "Hello"}).status_code == 200


def test_other_refusals(app: App) -> None:
    """A wrong content type is a 400, an unknown path or model a 404, a wrong method a 405."""
    error_of(app.ask("POST", COMPLETIONS, content=b"{}", headers={"Content-Type": "text/plain"}), 400)
    assert COMPLETIONS in error_of(app.ask("GET", "/v2/nothing"), 404)["message"]
    assert error_of(app.post(CHAT, {"messages": HELLO, "model": "gpt-4"}), 404)["param"] == "model"
    assert "`tiny`" in error_of(app.ask("GET", "/v1/models/some/model"), 404)["message"]
    response = app.ask("GET", COMPLETIONS)
    assert "POST" in error_of(response, 405)["message"]
    assert response.headers["allow"] == "POST"
    assert app.ask("GET", "/v1/models/tiny").json()["max_model_len"] == 128
    assert app.ask("GET", "/v1/models/").json()["data"][0]["id"] == "tiny"


def test_keys(runner: asyncio.Runner, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys, paths under /v1 require one of them, and others none; VLLM_API_KEY is the default."""
    monkeypatch.setenv("VLLM_API_KEY", "from outside")
    for keys, right in ((["one", "two"], "two"), ([], "from outside")):
        app = App.make(runner, engine, api_key=keys)
        for headers in ({}, {"Authorization": "Bearer three"}, {"Authorization": f"Basic {right}"}):
            response = app.ask("GET", "/v1/models", headers=headers)
            assert error_of(response, 401)["type"] == "AuthenticationError"
            assert response.headers["www-authenticate"] == "Bearer"
        assert app.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {right}"}).status_code == 200
        assert app.ask("GET", "/health").status_code == 200


def test_keys_behind_a_proxy(runner: asyncio.Runner, engine: FakeEngine) -> None:
    """Under --root-path the same paths require a key."""
    app = App.make(runner, engine, api_key=["one"], root_path="/api")
    for path in ("/api/v1/models", "/v1/models"):
        error_of(app.ask("GET", path), 401)
        assert app.ask("GET", path, headers={"Authorization": "Bearer one"}).status_code == 200
    assert app.ask("GET", "/api/health").status_code == 200


def test_other_websites(runner: asyncio.Runner, app: App) -> None:
    """Scripts of other websites are allowed only by --allowed-origins."""
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in app.ask("GET", "/health", headers=origin).headers
    allowing = App.make(runner, app.engine, allowed_origins=["https://example.org"])
    assert allowing.ask("GET", "/health", headers=origin).headers["access-control-allow-origin"] == origin["Origin"]


def test_a_dead_engine(app: App, engine: FakeEngine) -> None:
    """With a dead engine /health and every request are a 503, and a request makes the server exit."""
    engine.errored = True
    ended: list[bool] = []
    app.app.state.on_engine_death = lambda: ended.append(True)
    assert app.ask("GET", "/health").status_code == 503
    assert not ended
    for path, body in ((CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "Hello", "stream": True})):
        assert error_of(app.post(path, body), 503)["type"] == "EngineDeadError"
    assert ended == [True, True]


@pytest.mark.parametrize(
    ("failure", "status"), [(EngineDeadError(), 503), (EngineGenerateError("It failed."), 500), (OSError("Oh."), 500)]
)
def test_a_failure_in_the_middle(app: App, engine: FakeEngine, failure: BaseException, status: int) -> None:
    """An error in a stream is an event with its status as code, and the stream ends properly."""
    engine.fails_after, engine.failure = 2, failure
    for path, body in ((CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": ["Hello", "Hello"]})):
        response = app.post(path, {**body, "stream": True})
        assert response.status_code == 200
        *chunks, last = events(response)
        assert chunks
        assert last["error"]["code"] == status


def test_a_failure_before_a_response(app: App, engine: FakeEngine) -> None:
    """An internal failure is a 500 in the same form, without the failure's details."""
    engine.fails_after, engine.failure = 0, EngineGenerateError("It failed.")
    assert error_of(app.post(CHAT, {"messages": HELLO}), 500)["type"] == "EngineGenerateError"


def test_headers_of_a_request(app: App, engine: FakeEngine) -> None:
    """The trace context and X-Request-Id go to the engine, and an invalid context does not."""
    tracing = {"traceparent": TRACEPARENT, "tracestate": "a=b", "X-Request-Id": "mine"}
    assert app.post(CHAT, {"messages": HELLO}, **tracing).json()["id"] == "chatcmpl-mine"
    app.post(COMPLETIONS, {"prompt": ["a", "b"]}, traceparent="00-" + "0" * 32 + "-b7ad6b7169203331-01")
    first, *others = engine.requests
    assert first["request_id"] == "chatcmpl-mine"
    assert first["trace_headers"] == {"traceparent": TRACEPARENT, "tracestate": "a=b"}
    assert [request["trace_headers"] for request in others] == [None, None]
    assert [request["request_id"][-2:] for request in others] == ["-0", "-1"]


def test_request_id_headers(runner: asyncio.Runner, engine: FakeEngine) -> None:
    """With --enable-request-id-headers every response has an id, the request's own if it has one."""
    app = App.make(runner, engine, enable_request_id_headers=True)
    assert app.ask("GET", "/health", headers={"X-Request-Id": "mine"}).headers["x-request-id"] == "mine"
    assert len(app.ask("GET", "/nothing").headers["x-request-id"]) == 32


def test_unknown_fields_are_ignored_and_told(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown field is ignored, and its name is logged once."""
    for _ in range(2):
        assert app.post(COMPLETIONS, {"prompt": "Hello", "quux\n": 1}).status_code == 200
    assert [record.getMessage() for record in caplog.records] == ["Unknown fields of a request are ignored: 'quux\\n'."]


def leave(app: App, body: dict[str, Any], *, when: asyncio.Event) -> None:
    """Send a request, and disconnect when `when` is set."""
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await when.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": COMPLETIONS, "headers": headers, "query_string": b""}
    app.run(app.app(scope, receive, send))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away(app: App, engine: FakeEngine, stream: bool) -> None:
    """The requests of a disconnected client are aborted, streamed or not."""
    engine.stalls_after, engine.stalled = 3, asyncio.Event()
    leave(app, {"prompt": ["a", "b"], "stream": stream, "request_id": "mine"}, when=engine.stalled)
    assert sorted(engine.given_up) == ["cmpl-mine-0", "cmpl-mine-1"]
    assert app.ask("GET", "/load").json() == {"server_load": 0}


def test_others_run_between_prompts(app: App) -> None:
    """While a request with many texts is prepared, other tasks run after each of them."""

    async def work() -> tuple[Any, int]:
        request = CompletionRequest.model_validate({"model": "tiny", "prompt": [*["word"] * 40, "\ud800"]})
        preparing = asyncio.create_task(app.app.state.openai_serving_completion.create_completion(request))
        num_turns = 0
        while not preparing.done():
            await asyncio.sleep(0)
            num_turns += 1
        return await preparing, num_turns

    error, num_turns = app.run(work())
    assert "half a surrogate pair" in error.error.message
    assert num_turns > 40
