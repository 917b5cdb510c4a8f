"""Tests of the reasoning parsers against recordings of vLLM 0.11.1's (tests/fixtures/record_tool_calls.py)."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.fixtures.tool_texts import REASONING_TEXTS
from tracellm.engine.config.errors import EngineError
from tracellm.engine.reasoning import ReasoningParser, ReasoningParserManager

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = ["deepseek_r1", "qwen3"]
RECORDED = [
    case
    for line in (FIXTURES / "tool-calls.jsonl").read_text(encoding="utf-8").splitlines()
    if (case := json.loads(line))["parser"] in NAMES
]
DIFFERENT: dict[tuple[str, str], tuple[str | None, str | None]] = {
    # vLLM drops text before the reasoning, from complete texts only
    ("deepseek_r1", "Well. <think>I add them.</think>The sum is 3."): ("Well. I add them.", "The sum is 3."),
    ("deepseek_r1", "\n<think>I add them.</think>The sum is 3."): ("\nI add them.", "The sum is 3."),
    ("deepseek_r1", "x<think>y"): ("xy", None),
    ("qwen3", "Well. <think>I add them.</think>The sum is 3."): ("I add them.", "Well. The sum is 3."),
    ("qwen3", "\n<think>I add them.</think>The sum is 3."): ("I add them.", "\nThe sum is 3."),
    ("qwen3", "One.</think>Two.<think>Three.</think>Four."): ("Three.", "One.</think>Two.Four."),
    # vLLM looks for the reasoning behind the first end token
    ("deepseek_r1", "One.</think>Two.<think>Three.</think>Four."): ("One.", "Two.<think>Three.</think>Four."),
    # vLLM takes a reasoning that is cut off for content, from complete texts only
    ("qwen3", "<think>I add them."): ("I add them.", None),
    ("qwen3", "<think>"): ("", None),
    ("qwen3", "x<think>y"): ("y", "x"),
}


def tokenizer_with(*tokens: str) -> Any:
    """Return a tokenizer with these tokens added."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(FIXTURES / "tiny-random-qwen2")
    tokenizer.add_tokens(list(tokens))
    return tokenizer


TOKENIZER = tokenizer_with("<think>", "</think>")


def make(name: str, prompt: str = "") -> ReasoningParser:
    """Return a new parser of this name."""
    return ReasoningParserManager.get_reasoning_parser(name)(TOKENIZER, prompt)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['parser']}: {case['text'][:50]!r}")
def test_reasoning_as_in_vllm(case: dict[str, Any]) -> None:
    """A complete text has vLLM's reasoning and content, except where vLLM's complete text and stream contradict."""
    found = make(case["parser"]).extract_reasoning(case["text"])
    recorded = tuple(case["complete"])
    assert found == DIFFERENT.get((case["parser"], case["text"]), recorded)
    if found != recorded:
        assert any(stream != [part or "" for part in recorded] for stream in case["streams"].values())


@pytest.mark.parametrize("name", NAMES)
@given(text=st.sampled_from(REASONING_TEXTS), cuts=st.lists(st.integers(0, 400)), every=st.booleans())
def test_streams_equal_complete_texts(name: str, text: str, cuts: list[int], every: bool) -> None:
    """However a text is divided, its stream has the reasoning and the content of the complete text."""
    places = [0, *sorted(range(len(text)) if every else [cut % (len(text) + 1) for cut in cuts]), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    parser = make(name)
    found = [parser.extract_reasoning_streaming(piece) for piece in pieces]
    found.append(parser.extract_reasoning_streaming("", finished=True))
    reasoning, content = make(name).extract_reasoning(text)
    assert ["".join(part) for part in zip(*found, strict=True)] == [reasoning or "", content or ""]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", "I add.</think>3", ("I add.", "3")),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "3 <think>", (None, "3 <think>")),
        ("<think>a</think>b<|im_start|>assistant\n", "<think>I add.</think>3", ("I add.", "3")),
    ],
    ids=["begun", "ended", "in an earlier message"],
)
def test_prompts(name: str, prompt: str, text: str, expected: tuple[str | None, str | None]) -> None:
    """A prompt may begin the reasoning, or end it; marks of earlier messages mean nothing."""
    assert make(name, prompt).extract_reasoning(text) == expected
    token_ids = TOKENIZER.encode(prompt, add_special_tokens=False)
    assert make(name).prompt_ends_reasoning(token_ids) == (expected[0] is None)


@pytest.mark.parametrize("name", NAMES)
def test_the_end_in_tokens(name: str) -> None:
    """The reasoning ends at the end token."""
    end = TOKENIZER.convert_tokens_to_ids("</think>")
    assert make(name).is_reasoning_end([5, end])
    assert not make(name).is_reasoning_end([5, 6])


@pytest.mark.parametrize("name", NAMES)
def test_a_tokenizer_without_the_tokens(name: str) -> None:
    """A tokenizer without one of the tokens is an error, in vLLM's words."""
    parser = ReasoningParserManager.get_reasoning_parser(name)
    with pytest.raises(
        EngineError, match=r"reasoning parser could not locate think start/end tokens in the tokenizer!"
    ):
        parser(tokenizer_with("<think>"))


def test_unknown_parser() -> None:
    """A name that no parser has is an error."""
    with pytest.raises(KeyError, match="Reasoning parser 'o1' not found"):
        ReasoningParserManager.get_reasoning_parser("o1")


@pytest.mark.parametrize(
    ("name", "prompt", "text", "counted"),
    [
        ("qwen3", "", "<think>one two</think>three", "one two"),
        ("qwen3", "", "one two</think>three", ""),
        ("qwen3", "", "zero<think>one two", "one two"),
        ("qwen3", "", "<think>one<think>two</think>three<think>four", "one<think>two"),
        ("qwen3", "<think>", "one two</think>three", "one two"),
        ("qwen3", "</think>", "<think>one two</think>three", ""),
        ("deepseek_r1", "", "one two</think>three", "one two"),
        ("deepseek_r1", "", "<think>one two</think>three", "one two"),
        ("deepseek_r1", "", "one two", "one two"),
    ],
)
def test_tokens_of_the_reasoning_are_counted(name: str, prompt: str, text: str, counted: str) -> None:
    """The tokens of the reasoning are counted without those around it, and it is the parser's reasoning."""
    count = make(name, prompt).count_reasoning_tokens(TOKENIZER.encode(text, add_special_tokens=False))
    assert count == len(TOKENIZER.encode(counted, add_special_tokens=False))
    assert (make(name, prompt).extract_reasoning(text)[0] or "") == counted
