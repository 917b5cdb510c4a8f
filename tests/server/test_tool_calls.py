"""Tests of messages with tool calls and reasoning, from an engine that answers with a given text."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from transformers import PreTrainedTokenizerFast

from tests.fixtures.tool_texts import TEMPLATE
from tests.server.app import CHAT, HELLO, App, events
from tests.server.fake import FakeEngine
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.entrypoints.openai.cli_args import ServeArgs
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "get_time"}},
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
AUTO = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


NAMES = "{%- for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}{{ messages[-1].content }}"


class Speaker(FakeEngine):
    """Engine that answers with `answer`, three characters at a time."""

    answer = ""
    reason = "stop"

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(self.model_config.tokenizer)
        self.tokenizer.add_tokens(["<think>", "</think>"])

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, **further: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """Answer each request alike."""
        token_ids = prompt["prompt_token_ids"]
        self.requests.append({"prompt": prompt["prompt"], "token_ids": token_ids, "params": sampling_params})
        delta = sampling_params.output_kind is RequestOutputKind.DELTA
        pieces = [self.answer[start : start + 3] for start in range(0, len(self.answer), 3)] if delta else [self.answer]
        for number, piece in enumerate(pieces or [""], 1):
            await asyncio.sleep(0)
            reason = self.reason if number == max(len(pieces), 1) else None
            outputs = [CompletionOutput(index, piece, [97], finish_reason=reason) for index in range(sampling_params.n)]
            yield RequestOutput(request_id, None, [1, 2], None, outputs, finished=reason is not None)


@pytest.fixture(scope="module")
def speaker(runner: asyncio.Runner) -> Speaker:
    """Shared engine, as its tokenizer takes a moment to load."""
    return Speaker()


def ask(
    runner: asyncio.Runner,
    speaker: Speaker,
    answer: str,
    *,
    reason: str = "stop",
    reasoning_parser: str = "",
    options: dict[str, Any] = AUTO,
    **fields: Any,
) -> httpx.Response:
    """Return a server's response to a request, for which the engine has this answer."""
    speaker.answer, speaker.reason = answer, reason
    speaker.requests.clear()
    app = App.make(runner, speaker, engine_args=EngineArgs(reasoning_parser=reasoning_parser), **options)
    return app.post(CHAT, {"messages": HELLO, "max_tokens": 8, **fields})


def stripped(message: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a message, without the ids of its calls."""
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    return {"content": message["content"] or "", "reasoning": message["reasoning"] or "", "calls": calls}


def both(*args: Any, **fields: Any) -> dict[str, Any]:
    """Return the message and the finish reason of a complete response, after comparing them with a stream's."""
    response = ask(*args, **fields)
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["message"]["reasoning_content"] == choice["message"]["reasoning"]
    streamed: dict[str, Any] = {"content": "", "reasoning": "", "calls": []}
    finish = None
    for event in events(ask(*args, stream=True, **fields)):
        delta = event["choices"][0]["delta"]
        assert delta["reasoning_content"] == delta.get("reasoning")
        finish = event["choices"][0]["finish_reason"] or finish
        streamed["content"] += delta.get("content") or ""
        streamed["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                streamed["calls"].append([call["function"]["name"], ""])
            streamed["calls"][call["index"]][1] += call["function"].get("arguments", "")
    streamed["calls"] = [tuple(call) for call in streamed["calls"]]
    message = stripped(choice["message"])
    assert streamed == message
    assert finish == choice["finish_reason"]
    return {**message, "finish": finish, "raw": choice["message"]}


def test_auto(runner: asyncio.Runner, speaker: Speaker) -> None:
    """A call that the model writes is a tool call, beside the text before it, and special tokens are kept for it."""
    found = both(runner, speaker, f"Let me see.\n{CALL}", tools=TOOLS)
    assert found["content"] == "Let me see.\n"
    assert found["calls"] == [("get_weather", '{"city": "Paris"}')]
    assert found["finish"] == "tool_calls"
    assert found["raw"]["tool_calls"][0]["id"].startswith("chatcmpl-tool-")
    assert not speaker.requests[0]["params"].skip_special_tokens
    assert speaker.requests[0]["params"].structured_outputs is None


def test_auto_without_a_call(runner: asyncio.Runner, speaker: Speaker) -> None:
    """An answer without a call is content, and ends by `stop`."""
    found = both(runner, speaker, "It is a < b, <tool", tools=TOOLS)
    assert (found["content"], found["calls"], found["finish"]) == ("It is a < b, <tool", [], "stop")


def test_content_of_only_calls(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Beside calls alone the content is null, as in OpenAI's API; two calls have two ids."""
    found = both(runner, speaker, f"{CALL}\n{CALL}", tools=TOOLS)
    assert found["raw"]["content"] is None
    assert len({call["id"] for call in found["raw"]["tool_calls"]}) == 2


@pytest.mark.parametrize("choice", ["none", "absent"])
def test_none(runner: asyncio.Runner, speaker: Speaker, choice: str) -> None:
    """With `tool_choice` none, or without tools, a call is plain text."""
    fields = {"tools": TOOLS, "tool_choice": "none"} if choice == "none" else {}
    found = both(runner, speaker, CALL, **fields)
    assert (found["content"], found["calls"], found["finish"]) == (CALL, [], "stop")
    assert speaker.requests[0]["params"].skip_special_tokens


@pytest.mark.parametrize(("exclude", "prompt"), [(False, "[get_weather][get_time]Hello"), (True, "Hello")])
def test_tools_in_the_prompt(runner: asyncio.Runner, speaker: Speaker, exclude: bool, prompt: str) -> None:
    """The prompt lists the tools also for `tool_choice` none, unless the server leaves them out."""
    options = {"exclude_tools_when_tool_choice_none": exclude, "chat_template": NAMES}
    ask(runner, speaker, "Hi", options=options, tools=TOOLS, tool_choice="none")
    assert speaker.requests[0]["prompt"] == prompt


def test_required(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Required calls come from a list of JSON objects under a grammar, and need no parser of the model."""
    text = '[{"name": "get_weather", "parameters": {"city": "Paris"}}, {"name": "get_time", "parameters": {}}]'
    found = both(runner, speaker, text, options={}, tools=TOOLS, tool_choice="required")
    assert found["calls"] == [("get_weather", '{"city": "Paris"}'), ("get_time", "{}")]
    assert (found["raw"]["content"], found["finish"]) == ("", "tool_calls")
    schema = speaker.requests[0]["params"].structured_outputs.json
    assert schema["items"]["anyOf"][0]["properties"]["parameters"] == PARAMETERS


def test_named(runner: asyncio.Runner, speaker: Speaker) -> None:
    """A named call has the whole text as arguments, and ends by `stop`, as in OpenAI's API."""
    found = both(runner, speaker, '{"city": "Paris"}', options={}, tools=TOOLS, tool_choice=NAMED, n=1)
    assert found["calls"] == [("get_weather", '{"city": "Paris"}')]
    assert (found["raw"]["content"], found["finish"]) == ("", "stop")
    assert speaker.requests[0]["params"].structured_outputs.json == PARAMETERS


def test_a_forced_call_replaces_other_formats(runner: asyncio.Runner, speaker: Speaker) -> None:
    """The schema of a forced call replaces the request's other constraints."""
    others = {"response_format": {"type": "json_object"}, "guided_regex": "a+"}
    both(runner, speaker, "{}", tools=TOOLS, tool_choice=NAMED, **others)
    params = speaker.requests[0]["params"].structured_outputs
    assert (params.json, params.json_object, params.regex) == (PARAMETERS, None, None)


@pytest.mark.parametrize(
    ("choice", "text"),
    [("required", '[{"name": "get_weather", "parameters": {"ci'), (NAMED, '{"ci'), ("auto", f"{CALL}\n<tool_call>")],
    ids=["required", "named", "auto"],
)
def test_calls_that_are_cut_off(runner: asyncio.Runner, speaker: Speaker, choice: Any, text: str) -> None:
    """An answer that `max_tokens` cuts off ends by `length`, and never by `tool_calls`."""
    assert both(runner, speaker, text, reason="length", tools=TOOLS, tool_choice=choice)["finish"] == "length"


@pytest.mark.parametrize("parallel", [True, False, None])
def test_parallel_calls(runner: asyncio.Runner, speaker: Speaker, parallel: bool | None) -> None:
    """`parallel_tool_calls` false leaves one call; vLLM ignores it."""
    fields = {} if parallel is None else {"parallel_tool_calls": parallel}
    assert len(both(runner, speaker, CALL * 2, tools=TOOLS, **fields)["calls"]) == (1 if parallel is False else 2)
    text = '[{"name": "get_time", "parameters": {}}]'
    both(runner, speaker, text, tools=TOOLS, tool_choice="required", **fields)
    schema = speaker.requests[0]["params"].structured_outputs.json
    assert schema.get("maxItems") == (1 if parallel is False else None)


def test_a_long_answer(runner: asyncio.Runner, speaker: Speaker) -> None:
    """A long answer, which is parsed beside the event loop, has its calls all the same."""
    city = "x" * 20_000
    found = both(runner, speaker, CALL.replace("Paris", city), tools=TOOLS)
    assert found["calls"] == [("get_weather", json.dumps({"city": city}))]


def test_several_outputs(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Each of several outputs has its own calls, whose indices begin at 0; vLLM mixes them up."""
    fields: dict[str, Any] = {"tools": TOOLS, "n": 2, "temperature": 1}
    choices = ask(runner, speaker, CALL, **fields).json()["choices"]
    assert [len(choice["message"]["tool_calls"]) for choice in choices] == [1, 1]
    for index in (0, 1):
        sent = [
            call
            for event in events(ask(runner, speaker, CALL, stream=True, **fields))
            for choice in event["choices"]
            if choice["index"] == index
            for call in choice["delta"].get("tool_calls", ())
        ]
        assert {call["index"] for call in sent} == {0}
        assert json.loads("".join(call["function"].get("arguments", "") for call in sent)) == {"city": "Paris"}


def test_log_probabilities_and_tokens_of_held_text(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Tokens whose text is held back are sent all the same to a client that asks for them."""
    response = events(ask(runner, speaker, CALL, tools=TOOLS, stream=True, return_token_ids=True))
    tokens = [token for event in response for token in event["choices"][0].get("token_ids") or ()]
    assert len(tokens) == -(-len(CALL) // 3)
    assert len(events(ask(runner, speaker, CALL, tools=TOOLS, stream=True))) < len(response)


# -- reasoning --------------------------------------------------------------------------------------------------------


def test_reasoning(runner: asyncio.Runner, speaker: Speaker) -> None:
    """The reasoning is split off the content."""
    found = both(runner, speaker, "<think>\nI add.\n</think>\n\n3", reasoning_parser="qwen3")
    assert (found["reasoning"], found["content"], found["finish"]) == ("\nI add.\n", "\n\n3", "stop")


def test_reasoning_and_calls(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Calls are looked for after the reasoning only."""
    text = f"I could call {CALL}.</think>\n{CALL}"
    found = both(runner, speaker, text, reasoning_parser="deepseek_r1", tools=TOOLS)
    assert found["reasoning"] == f"I could call {CALL}."
    assert found["calls"] == [("get_weather", '{"city": "Paris"}')]
    assert found["finish"] == "tool_calls"


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
def test_reasoning_and_forced_calls(runner: asyncio.Runner, speaker: Speaker, choice: Any) -> None:
    """A forced call comes after the reasoning; without its end there is none, which in vLLM is an error."""
    text = '{"city": "Paris"}' if choice is NAMED else '[{"name": "get_weather", "parameters": {"city": "Paris"}}]'
    fields = {"reasoning_parser": "deepseek_r1", "tools": TOOLS, "tool_choice": choice}
    found = both(runner, speaker, f"Paris?</think>{text}", **fields)
    assert (found["reasoning"], found["calls"]) == ("Paris?", [("get_weather", '{"city": "Paris"}')])
    cut = both(runner, speaker, "Par", reason="length", **fields)
    assert (cut["reasoning"], cut["calls"], cut["finish"]) == ("Par", [], "length")


def test_reasoning_that_is_cut_off(runner: asyncio.Runner, speaker: Speaker) -> None:
    """An answer that ends within its reasoning has no content, also with tools."""
    found = both(runner, speaker, "I would", reason="length", reasoning_parser="deepseek_r1", tools=TOOLS)
    assert (found["reasoning"], found["raw"]["content"], found["finish"]) == ("I would", None, "length")


def test_excluded_reasoning(runner: asyncio.Runner, speaker: Speaker) -> None:
    """`include_reasoning` false leaves the reasoning out, also of streams, where vLLM sends it."""
    found = both(runner, speaker, "<think>a</think>b", reasoning_parser="qwen3", include_reasoning=False)
    assert (found["reasoning"], found["content"]) == ("", "b")


def test_a_prompt_that_ends_the_reasoning(runner: asyncio.Runner, speaker: Speaker) -> None:
    """An answer after `</think>` in the prompt is content; vLLM takes complete ones for reasoning."""
    options = {"chat_template": "{{ messages[-1].content }}<think>\n\n</think>\n\n"}
    found = both(runner, speaker, "3", reasoning_parser="deepseek_r1", options=options)
    assert (found["reasoning"], found["content"]) == ("", "3")


# -- conversations ----------------------------------------------------------------------------------------------------

RECORDED = [
    case
    for line in (Path(__file__).parents[1] / "fixtures" / "tool-calls.jsonl").read_text(encoding="utf-8").splitlines()
    if (case := json.loads(line))["parser"] == "chat_template"
]


@pytest.mark.parametrize("case", RECORDED, ids=range(len(RECORDED)))
def test_conversations_as_in_vllm(runner: asyncio.Runner, speaker: Speaker, case: dict[str, Any]) -> None:
    """Messages with tool calls, their results and reasoning make the same prompt as in vLLM."""
    fields = {"messages": case["messages"], "tools": case["tools"]}
    response = ask(runner, speaker, "Hi", options={**AUTO, "chat_template": TEMPLATE}, **fields)
    assert response.status_code == 200, response.text
    assert speaker.requests[0]["prompt"] == case["prompt"]


def test_a_message_that_the_server_generated(runner: asyncio.Runner, speaker: Speaker) -> None:
    """A generated message with a call and reasoning can be sent back as it is, with the call's result."""
    first = both(runner, speaker, f"<think>Paris!</think>{CALL}", reasoning_parser="qwen3", tools=TOOLS)["raw"]
    call = first["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call, "content": "12 degrees"}
    options: dict[str, Any] = {**AUTO, "chat_template": TEMPLATE, "exclude_tools_when_tool_choice_none": True}
    fields: dict[str, Any] = {
        "messages": [*HELLO, first, result],
        "tools": TOOLS,
        "tool_choice": "none",
        "max_tokens": 1,
    }
    response = ask(runner, speaker, "Mild.", options=options, **fields)
    assert response.status_code == 200, response.text
    assert speaker.requests[0]["prompt"] == (
        f'<user>Hello<assistant>(thought: Paris!){call}:get_weather({{"city": "Paris"}});<tool>12 degrees#{call}'
    )


# -- refusals ---------------------------------------------------------------------------------------------------------


def refusal(*args: Any, **fields: Any) -> str:
    """Return the message of a refused request."""
    response = ask(*args, **fields)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["type"] == "BadRequestError" or error["type"] == "Bad Request"
    return str(error["message"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool_choice": "auto"}, "When using `tool_choice`, `tools` must be set."),
        ({"tool_choice": "any"}, "Invalid value for `tool_choice`: any! Only named tools,"),
        (
            {"tool_choice": {"type": "function"}},
            "Invalid value for `function`: `None` in `tool_choice`! Correct usage: ",
        ),
        ({"tool_choice": {"function": {}}}, "Expected field `name` in `function` in `tool_choice`! Correct usage: "),
        ({"tool_choice": {"function": {"name": ""}}}, "Invalid `name` in `function`: `` in `tool_choice`! Correct usa"),
        ({"tool_choice": {"function": {"name": "x"}}}, "The tool specified in `tool_choice` does not match any of the"),
    ],
)
def test_wrong_choices(runner: asyncio.Runner, speaker: Speaker, fields: dict[str, Any], message: str) -> None:
    """A wrong `tool_choice` is refused in vLLM's words."""
    tools = {} if fields["tool_choice"] == "auto" else {"tools": TOOLS}
    assert message in refusal(runner, speaker, "", **tools, **fields)


def test_auto_without_a_parser(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Without --enable-auto-tool-choice, `auto` is refused in vLLM's words, also for tools without a `tool_choice`."""
    words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    assert refusal(runner, speaker, "", options={}, tools=TOOLS).startswith(words)
    assert refusal(runner, speaker, "", options={"tool_call_parser": "hermes"}, tools=TOOLS).startswith(words)


def test_required_without_tools(runner: asyncio.Runner, speaker: Speaker) -> None:
    """Required calls of no tools are none, as in vLLM."""
    found = both(runner, speaker, "Hi", options={}, tools=[], tool_choice="required")
    assert (found["content"], found["finish"]) == ("Hi", "stop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enable_auto_tool_choice": True}, "--enable-auto-tool-choice requires --tool-call-parser"),
        ({"tool_call_parser": "xml"}, "--tool-call-parser.* must be one of hermes, llama3_json, llama4_json, mistral"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    """Options that contradict each other, and unknown parsers, are refused with what is possible."""
    with pytest.raises(EngineError, match=message):
        ServeArgs(engine_args=EngineArgs(), **options)


def test_an_unknown_reasoning_parser() -> None:
    """An unknown reasoning parser is refused with those that are known."""
    with pytest.raises(EngineError, match="`reasoning_parser` must be one of deepseek_r1, qwen3, or an empty string"):
        EngineArgs(reasoning_parser="o1")


@pytest.mark.parametrize("option", ["tool_call_parser", "reasoning_parser"])
def test_a_tokenizer_without_the_tokens(runner: asyncio.Runner, option: str) -> None:
    """A parser whose tokens the tokenizer lacks ends the start of the server."""
    options: dict[str, Any] = {"enable_auto_tool_choice": True, "tool_call_parser": "mistral"}
    reasoning = option == "reasoning_parser"
    engine_args = EngineArgs(reasoning_parser="qwen3" if reasoning else "")
    with pytest.raises(EngineError, match="could not locate"):
        App.make(runner, FakeEngine(), engine_args=engine_args, **({} if reasoning else options))
