"""The chat template of `tiny-tools`: the same text in transformers and in the training, whatever the client adds."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tracellm.tiny import MODEL_DIR as TINY_DIR
from tracellm.tiny_tools import MODEL_DIR
from training.tools.conversations import parts, request, toolbox
from training.tools.draw import Draw
from training.tools.schemas import Tool, as_sent

TOKENIZER = AutoTokenizer.from_pretrained(MODEL_DIR)
TINY = AutoTokenizer.from_pretrained(TINY_DIR)


def _function(**parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "description": "Do it.\n\nMore.", "parameters": parameters}}


def _listed(tool: dict[str, Any]) -> str:
    text: str = TOKENIZER.apply_chat_template([{"role": "user", "content": "x"}], tools=[tool], tokenize=False)
    return text.split("Tools:\n")[1].split("<|im_end|>")[0]


@given(st.integers(0, 10_000), st.sampled_from(("en", "zh")))
def test_a_conversation_is_the_text_of_the_training(seed: int, lang: Any) -> None:
    """Messages as a client sends them, with a call and its result, get the text that the training had."""
    draw = Draw(str(seed))
    box = toolbox(draw)
    exchange = request(draw, box, lang)
    assert exchange.call
    call = {"type": "function", "function": {"name": exchange.call.name, "arguments": exchange.call.arguments}}
    messages: list[dict[str, Any]] = [{"role": "system", "content": box.system}] if box.system else []
    messages += [
        {"role": "user", "content": exchange.request},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": exchange.call.result},
        {"role": "assistant", "content": exchange.answer},
    ]
    text = TOKENIZER.apply_chat_template(messages, tools=box.sent, tokenize=False)
    assert text == box.text() + "".join(part.text for part in parts(exchange))


@given(st.lists(st.sampled_from(("system", "user", "assistant")), min_size=1, max_size=4), st.booleans())
def test_without_tools_it_is_the_template_of_tiny(roles: list[str], generate: bool) -> None:
    """A conversation without tools has the same text as for `tiny`."""
    messages = [{"role": role, "content": f"text {index}"} for index, role in enumerate(roles)]
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": generate}
    assert TOKENIZER.apply_chat_template(messages, **options) == TINY.apply_chat_template(messages, **options)


def test_additions_of_clients_make_no_difference() -> None:
    """A tool is listed alike in every client's form of its schema."""
    tool = Tool("get_weather", {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}}, "The weather.", ("unit",))
    sent = [as_sent(random.Random(seed), [tool])[0] for seed in range(40)]
    assert len({str(each) for each in sent}) >= 5
    assert {_listed(each) for each in sent} == {
        'The weather.\n{"name": "get_weather", "arguments": {"city": "string"}}'
    }


@pytest.mark.parametrize(
    ("parameters", "listed"),
    [
        ({}, "{}"),
        ({"type": "object", "properties": {}}, "{}"),
        ({"properties": {"a": {"type": "integer"}, "b": {"type": "number"}}}, '{"a": "integer", "b": "number"}'),
        ({"properties": {"b": {}, "a": {}}, "required": ["a", "b"]}, '{"b": "any", "a": "any"}'),
        ({"properties": {"a": {"type": ["string", "null"]}}}, '{"a": "string|null"}'),
        ({"properties": {"a": {"anyOf": [{"enum": [1, 2]}, {"type": "null"}]}}}, '{"a": "1|2|null"}'),
        ({"properties": {"a": {"$ref": "#/$defs/U"}}, "$defs": {"U": {"enum": ["C", "F"]}}}, '{"a": "C|F"}'),
        ({"properties": {"城市": {"type": "string"}}}, '{"城市": "string"}'),
    ],
)
def test_arguments_are_listed(parameters: dict[str, Any], listed: str) -> None:
    """Required arguments, or all if none is, are listed in the order of the properties, each with its type."""
    assert _listed(_function(**parameters)) == f'Do it.\n{{"name": "f", "arguments": {listed}}}'
