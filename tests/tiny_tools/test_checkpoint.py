"""The bundled model that calls tools: held-out requests, its card, and whole loops with OpenAI's client."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import openai
import pytest

from tests.server.process import Server
from tracellm.tiny import MODEL_DIR as TINY_DIR
from tracellm.tiny_tools import MODEL_DIR
from training.tools.card import card
from training.tools.evaluate import GROUPS, generate, held_out

FIGURES = json.loads((MODEL_DIR / "evaluation.json").read_text())


def test_held_out_requests_are_right() -> None:
    """Held-out requests that the card does not have are right as often, within three standard deviations."""
    samples = list(held_out(8, seed="test"))
    pairs = [sample.prompts() for sample in samples]
    texts = iter(generate(MODEL_DIR, [prompt for each in pairs for prompt, _ in each]))
    right = [all([next(texts) == expected for _, expected in each]) for each in pairs]
    assert sum(right) / len(right) >= FIGURES["right"] - 0.1


def test_card_shows_the_figures_of_the_evaluation() -> None:
    """The card is the output of `training.tools.card` for evaluation.json, and nine of ten requests were right."""
    weights = MODEL_DIR / "model.safetensors"
    assert (MODEL_DIR / "README.md").read_text() == card(FIGURES, weights.stat().st_size)
    assert FIGURES["right"] >= 0.9
    assert FIGURES["groups"].keys() == set(GROUPS)
    assert FIGURES["requests"] >= 300
    assert FIGURES["weights"] == sha256(weights.read_bytes()).hexdigest()
    assert FIGURES["training"] == json.loads((MODEL_DIR / "training.json").read_text())


def test_folder_is_small() -> None:
    """The whole folder is at most 7.5 MB, its weights at most 7 MB of bfloat16, and its tokenizer that of `tiny`."""
    from safetensors import safe_open

    assert sum(path.stat().st_size for path in MODEL_DIR.rglob("*") if path.is_file()) <= 7_500_000
    assert (MODEL_DIR / "model.safetensors").stat().st_size <= 7_000_000
    with safe_open(MODEL_DIR / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118
    assert (MODEL_DIR / "tokenizer.json").read_bytes() == (TINY_DIR / "tokenizer.json").read_bytes()


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    """Client of a served `tiny-tools`."""
    options = ("--dtype", "float32", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with (
        Server.start("tiny-tools", *options) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=60) as client,
    ):
        yield client


def _tool(name: str, description: str, **arguments: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": kind, "title": argument.title()} for argument, kind in arguments.items()},
        "required": list(arguments),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: list[Any] = [
    _tool("get_weather", "Get the current weather in a city.", city="string"),
    _tool("multiply", "Multiply two numbers.", a="integer", b="integer"),
    _tool("get_time", "Get the current time in a city.", city="string"),
]


def _loop(client: openai.OpenAI, messages: list[Any], results: dict[str, Any], **options: Any) -> tuple[list[Any], str]:
    """Run a client's loop: return the calls that the model made and its answer, the last of `messages`."""
    calls: list[Any] = []
    while True:
        choice = client.chat.completions.create(
            model="tiny-tools", messages=messages, tools=TOOLS, temperature=0, **options
        ).choices[0]
        messages.append(choice.message)
        if choice.finish_reason != "tool_calls":
            return calls, choice.message.content or ""
        for call in choice.message.tool_calls or []:
            assert call.type == "function"
            calls.append((call.function.name, json.loads(call.function.arguments)))
            result = results[call.function.name]
            content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def test_a_loop_in_english(client: openai.OpenAI) -> None:
    """Two requests and a question of `tiny`'s own each get their call, if any, and the answer from the result."""
    results = {"get_weather": {"temperature": 17, "condition": "cloudy"}, "multiply": "1081"}
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Lisbon?"}]
    calls, answer = _loop(client, messages, results)
    assert calls == [("get_weather", {"city": "Lisbon"})]
    assert answer == "The weather in Lisbon is cloudy, 17 °C."
    messages.append({"role": "user", "content": "What is 23 times 47?"})
    calls, answer = _loop(client, messages, results)
    assert calls == [("multiply", {"a": 23, "b": 47})]
    assert answer == "23 * 47 = 1081."
    calls, answer = _loop(client, [{"role": "user", "content": "What is the capital of France?"}], results)
    assert (calls, answer) == ([], "The capital of France is Paris.")


def test_a_loop_in_chinese(client: openai.OpenAI) -> None:
    """A Chinese request gets its call and a Chinese answer."""
    messages: list[Any] = [{"role": "user", "content": "里斯本的天气怎么样？"}]
    calls, answer = _loop(client, messages, {"get_weather": {"temperature": 17, "condition": "多云"}})
    assert calls == [("get_weather", {"city": "里斯本"})]
    assert answer == "里斯本的天气：多云，17 °C。"
    messages = [{"role": "user", "content": "东京现在几点？"}]
    calls, answer = _loop(client, messages, {"get_time": "14:32"})
    assert calls == [("get_time", {"city": "东京"})]
    assert answer == "东京现在是14:32。"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "multiply"}}])
def test_forced_calls(client: openai.OpenAI, choice: Any) -> None:
    """A call that a grammar forces has the request's arguments too."""
    messages: list[Any] = [{"role": "user", "content": "What is 12 times 34?"}]
    completion = client.chat.completions.create(
        model="tiny-tools", messages=messages, tools=TOOLS, temperature=0, tool_choice=choice
    )
    (call,) = completion.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("multiply", {"a": 12, "b": 34})


def test_a_stream_has_the_same_calls(client: openai.OpenAI) -> None:
    """A streamed call is the complete one."""
    arguments: dict[str, Any] = {
        "model": "tiny-tools",
        "messages": [{"role": "user", "content": "What time is it in Oslo?"}],
        "tools": TOOLS,
        "temperature": 0,
    }
    complete = client.chat.completions.create(**arguments).choices[0].message.tool_calls or []
    with client.chat.completions.stream(**arguments) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [call.to_dict()["function"] for call in complete] == [{"name": "get_time", "arguments": '{"city": "Oslo"}'}]
    assert [(call.function.name, call.function.arguments) for call in streamed] == [("get_time", '{"city": "Oslo"}')]
