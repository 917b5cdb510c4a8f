"""Tests of the server's errors against those of `vllm serve` 0.11.1: the same status and type, and its words first.

Clients match words: litellm takes another model after "This model's maximum context length is".
"""

import ast
import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.app import FIXTURES, App, recorded_app

RECORDED = [json.loads(line) for line in (FIXTURES / "server-errors.jsonl").read_text(encoding="utf-8").splitlines()]
LONG = [11] * 1500
"""The prompt that the recording calls REPEAT."""
DIFFERENT = {
    # vLLM's completions have the words of too long a prompt, with the model's length less `max_tokens`, negative here;
    # its chat has these, in which clients find the length, too
    "max_tokens too large": "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
    "length is 1024 tokens and your request has 2 input tokens (5000 > 1024 - 2).",
    # vLLM: Python's error of int()
    "logit_bias of a word": "SamplingParams: `logit_bias` must map token ids to numbers",
    "an image": "messages[0]: only text parts are supported",  # vLLM names the model's directory
    # vLLM lists eleven errors and more, for each kind of message
    "an unknown role alone": "messages[0] needs a `role`",
    "a content of a number": "messages[0] needs a `content` that is text",
    "a null content": "messages[0] needs a `content` that is text",
    # vLLM has two models of it, each with three of these types
    "response_format": "Input should be 'text', 'json_object', 'json_schema' or 'structural_tag'",
}
"""Words that differ on purpose."""
OWN_TYPES = {401: "AuthenticationError", 404: "NotFoundError", 405: "MethodNotAllowedError"}
"""Types of errors for which vLLM sends no JSON of OpenAI's form."""


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """The server with the model and the settings of the recording."""
    with asyncio.Runner() as runner, recorded_app(runner, {}, api_key=["secret"]) as app:
        yield app


def words_of(message: str) -> str:
    """Return what vLLM's message says of the request, without the request itself.

    A message about the form of a body is a list of pydantic's errors in Python's notation.
    """
    if found := re.search(r"'msg': ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", message):
        message = ast.literal_eval(found[1])
    elif message.startswith("1 validation error"):
        message = message.partition("\n  ")[2].partition(" [")[0].partition(": {")[0]
    # A completion has the model's length less `max_tokens`, 2 in all of the requests.
    message = re.sub(r"(length is |max_length=)1022\b", r"\g<1>1024", message)
    return message.removeprefix("Value error, ").removesuffix(" None")


def test_words_are_taken_from_messages_of_both_forms() -> None:
    """The words of plain messages and of pydantic's lists are found."""
    assert words_of("top_p must be in (0, 1], got 2.0.") == "top_p must be in (0, 1], got 2.0."
    assert words_of("1 validation error:\n  {'type': 'a', 'msg': \"Value error, it's\", 'input': {}}") == "it's"
    assert words_of("1 validation error:\n  Only 'a' [\"Only 'a'\"]") == "Only 'a'"


@pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])
def test_an_error_is_that_of_vllm(app: App, case: dict[str, Any]) -> None:
    """Status, type and code are vLLM's, and the message begins with its words."""
    body = None if case["body"] is None else case["body"].replace('"REPEAT"', str(LONG)).encode()
    response = app.ask(case["method"], case["path"], headers=case["headers"], content=body)
    assert response.status_code == case["status"], response.text
    error, theirs = response.json()["error"], case["response"].get("error", case["response"].get("detail"))
    assert error["code"] == case["status"]
    if isinstance(theirs, str):  # no OpenAI's form
        words, expected_type = theirs, OWN_TYPES[case["status"]]
    else:
        words, expected_type = words_of(theirs["message"]), theirs["type"]
        assert theirs["param"] is None, "vLLM 0.11.1 names no field; tracellm does, as OpenAI and later versions do"
    assert error["type"] == expected_type
    words = DIFFERENT.get(case["name"], words).rstrip(".")
    if expected_type == "Bad Request":  # the field comes first
        assert words in error["message"]
    else:
        assert error["message"].startswith(words)


def test_each_difference_is_one(app: App) -> None:
    """Every case that is listed as different is among the recorded ones."""
    assert DIFFERENT.keys() <= {case["name"] for case in RECORDED}
