"""Tests of `/v1/responses` with OpenAI's own client: the bundled model behind a socket, and a whole tool loop."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import openai
import pytest

from tests.server.app import App
from tests.server.fake import FakeEngine
from tests.server.process import Server
from tests.server.test_tool_calls import AUTO, Speaker
from tests.server.test_tool_clients import ASKS, Weather
from tracellm.engine.config.arg_utils import EngineArgs

QUESTION = "How is the weather in Paris?"


TOOL: Any = openai.pydantic_function_tool(Weather)["function"] | {"type": "function"}
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    """Client of a server with the bundled model, which stores responses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
        with (
            Server.start("--max-num-seqs", "8", "--enable-auto-tool-choice", "--tool-call-parser", "hermes") as server,
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=60) as client,
        ):
            yield client


def chat(client: openai.OpenAI, *messages: tuple[str, str], max_tokens: int) -> str | None:
    """Return the answer of a chat completion."""
    asked: Any = [{"role": role, "content": content} for role, content in messages]
    answer = client.chat.completions.create(**GREEDY, messages=asked, max_tokens=max_tokens)
    return answer.choices[0].message.content


def test_create(client: openai.OpenAI) -> None:
    """A response has the text and the tokens of a chat completion."""
    response = client.responses.create(**GREEDY, input=QUESTION, instructions="Be brief.", max_output_tokens=8)
    assert response.output_text == chat(client, ("system", "Be brief."), ("user", QUESTION), max_tokens=8)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 8
    assert response.usage.total_tokens == response.usage.input_tokens + 8
    again = client.responses.create(**GREEDY, input=QUESTION, instructions="Be brief.", max_output_tokens=8)
    assert again.usage is not None
    assert 0 < again.usage.input_tokens_details.cached_tokens < again.usage.input_tokens


def test_stream(client: openai.OpenAI) -> None:
    """The client follows a stream to the response of the same request; its snapshots grow with the deltas."""
    arguments: dict[str, Any] = {**GREEDY, "input": QUESTION, "max_output_tokens": 8}
    with client.responses.stream(**arguments) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == client.responses.create(**arguments).output_text
    kinds = [event.type for event in client.responses.create(**arguments, stream=True)]
    assert [kinds[0], kinds[-1]] == ["response.created", "response.completed"]


def test_parse(client: openai.OpenAI) -> None:
    """A pydantic model is a format, and the client parses the answer, complete or streamed."""
    tokenizer = FakeEngine().tokenizer
    spaces = {token: -100 for token in range(len(tokenizer)) if tokenizer.decode([token]).isspace()}  # endless ones
    arguments: dict[str, Any] = {**GREEDY, "input": QUESTION, "text_format": Weather, "max_output_tokens": 60}
    arguments["extra_body"] = {"logit_bias": spaces}
    parsed = client.responses.parse(**arguments)
    assert isinstance(parsed.output_parsed, Weather)
    assert parsed.status == "completed"
    with client.responses.stream(**arguments) as stream:
        assert stream.get_final_response().output_parsed == parsed.output_parsed


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "Weather"}], ids=["required", "named"])
def test_forced_calls(client: openai.OpenAI, choice: Any) -> None:
    """A forced call has valid arguments, the same complete and streamed."""
    arguments: dict[str, Any] = {**GREEDY, "input": QUESTION, "tools": [TOOL], "tool_choice": choice}
    arguments |= {"parallel_tool_calls": False, "max_output_tokens": 80}
    (call,) = client.responses.create(**arguments).output
    assert call.type == "function_call"
    Weather.model_validate_json(call.arguments)
    with client.responses.stream(**arguments) as stream:
        done = [event for event in stream if event.type == "response.function_call_arguments.done"]
        (streamed,) = stream.get_final_response().output
    assert streamed.type == "function_call"
    assert (streamed.name, streamed.arguments) == ("Weather", call.arguments)
    assert [event.arguments for event in done] == [call.arguments]


def test_conversation(client: openai.OpenAI) -> None:
    """A later response continues a stored one, as the same messages do in a chat."""
    first = client.responses.create(**GREEDY, input=QUESTION, max_output_tokens=6)
    second = client.responses.create(**GREEDY, input="And Rome?", previous_response_id=first.id, max_output_tokens=6)
    messages = [("user", QUESTION), ("assistant", first.output_text), ("user", "And Rome?")]
    assert second.output_text == chat(client, *messages, max_tokens=6)
    items: Any = [{"role": "user", "content": QUESTION}, *first.output, {"role": "user", "content": "And Rome?"}]
    assert client.responses.create(**GREEDY, input=items, max_output_tokens=6).output_text == second.output_text
    assert client.responses.retrieve(second.id).output_text == second.output_text


def test_log_probabilities(client: openai.OpenAI) -> None:
    """Log probabilities of the text are those of a chat completion, complete and streamed."""
    arguments: dict[str, Any] = {**GREEDY, "input": QUESTION, "max_output_tokens": 3, "top_logprobs": 2}
    arguments |= {"include": ["message.output_text.logprobs"]}
    (item,) = client.responses.create(**arguments).output
    assert item.type == "message"
    (part,) = item.content
    assert part.type == "output_text"
    assert part.logprobs is not None
    messages: Any = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(**GREEDY, messages=messages, max_tokens=3, logprobs=True, top_logprobs=2)
    assert answer.choices[0].logprobs is not None
    expected = answer.choices[0].logprobs.content
    assert expected is not None
    assert [token.token for token in part.logprobs] == [token.token for token in expected]
    assert [token.logprob for token in part.logprobs] == pytest.approx([token.logprob for token in expected], abs=1e-4)
    assert [len(token.top_logprobs) for token in part.logprobs] == [2, 2, 2]
    events = client.responses.create(**arguments, stream=True)
    tokens = [token for event in events if event.type == "response.output_text.delta" for token in event.logprobs]
    assert [token.token for token in tokens] == [token.token for token in expected]


def tokens_of(response: Any) -> list[str]:
    """Return the tokens of a response's only message that have log probabilities."""
    ((part,),) = [item.content for item in response.output]
    return [token.token for token in part.logprobs]


def test_log_probabilities_to_the_end(client: openai.OpenAI) -> None:
    """The response of a stream has the log probabilities of the complete one, with that of the last token."""
    arguments: dict[str, Any] = {**GREEDY, "input": "What is the capital of France?"}
    arguments |= {"include": ["message.output_text.logprobs"]}
    with client.responses.stream(**arguments) as stream:
        streamed = stream.get_final_response()
    response = client.responses.create(**arguments)
    assert response.status == streamed.status == "completed"
    assert response.usage is not None
    complete, again = tokens_of(response), tokens_of(streamed)
    assert complete == again
    assert len(complete) == response.usage.output_tokens


def test_background(client: openai.OpenAI) -> None:
    """A response in the background is retrieved when it is done, and a long one is cancelled."""
    response = client.responses.create(**GREEDY, input=QUESTION, max_output_tokens=4, background=True)
    assert response.status == "queued"
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert response.output_text == chat(client, ("user", QUESTION), max_tokens=4)
    endless: dict[str, Any] = {
        "model": "tiny",
        "input": QUESTION,
        "background": True,
        "extra_body": {"ignore_eos": True},
    }
    response = client.responses.create(**endless)
    cancelled = client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(response.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        client.responses.cancel(response.id)


def test_a_stream_is_resumed(client: openai.OpenAI) -> None:
    """A stream in the background that breaks off is read on from the event after the last one."""
    arguments: dict[str, Any] = {**GREEDY, "input": QUESTION, "max_output_tokens": 6, "background": True}
    with client.responses.create(**arguments, stream=True) as events:
        first = next(events)
        assert first.type == "response.created"
    rest = [*client.responses.retrieve(first.response.id, stream=True, starting_after=first.sequence_number)]
    assert [event.sequence_number for event in rest] == [*range(1, len(rest) + 1)]
    assert rest[-1].type == "response.completed"


def test_errors(client: openai.OpenAI) -> None:
    """Refusals are the client's exceptions, with the words and the field."""
    with pytest.raises(openai.NotFoundError, match="Response with id 'resp_none' not found"):
        client.responses.retrieve("resp_none")
    with pytest.raises(openai.BadRequestError, match="temperature must be non-negative") as raised:
        client.responses.create(model="tiny", input=QUESTION, temperature=-1)
    assert raised.value.param == "temperature"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.responses.create(model="gpt-4", input=QUESTION)


def test_tool_loop() -> None:
    """The client streams a call with reasoning, sends its output by the response's id, and gets the answer."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
        speaker = Speaker()
        app = App.make(runner, speaker, engine_args=EngineArgs(reasoning_parser="qwen3"), **AUTO)
        runner.run(_loop(app, speaker))


async def _loop(app: App, speaker: Speaker) -> None:
    http_client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app.app))
    async with openai.AsyncOpenAI(base_url="http://server/v1", api_key="-", http_client=http_client) as client:
        speaker.answer = ASKS
        arguments: dict[str, Any] = {"model": "tiny", "tools": [TOOL]}
        async with client.responses.stream(input=QUESTION, **arguments) as stream:
            reasoning = "".join(
                [event.delta async for event in stream if event.type == "response.reasoning_text.delta"]
            )
            response = await stream.get_final_response()
        assert reasoning == "\nParis.\n"
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
        call = response.output[-1]
        assert call.type == "function_call"
        assert json.loads(call.arguments) == {"city": "Paris", "days": 2}

        speaker.answer = "It is mild."
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": '{"degrees": 12}'}
        answer = await client.responses.create(input=[output], previous_response_id=response.id, **arguments)
        assert (answer.output_text, answer.status) == ("It is mild.", "completed")
        assert '{"degrees": 12}' in speaker.requests[-1]["prompt"]
        sent: Any = [{"role": "user", "content": QUESTION}, *response.output, output]
        await client.responses.create(input=sent, **arguments)
        assert speaker.requests[-1]["prompt"].count("Paris") == speaker.requests[-2]["prompt"].count("Paris")
