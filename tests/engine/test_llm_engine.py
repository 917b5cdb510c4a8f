"""Tests of `LLMEngine`: requests and aborts that it refuses."""

import re

import numpy as np
import pytest

from tests.checkpoints import VOCAB_SIZE
from tracellm import LLM, SamplingParams, StructuredOutputsParams
from tracellm.engine.config.errors import InvalidRequestError

GREEDY = SamplingParams(temperature=0, max_tokens=4)


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """An LLM with the priority policy."""
    return LLM(str(qwen2_checkpoint), dtype="float32", scheduling_policy="priority")


@pytest.mark.parametrize(
    ("request_id", "arguments", "message"),
    [
        (5, {}, "`request_id` must be a string, got 5"),
        ("a", {"priority": "high"}, "`priority` must be a whole number, got 'high'"),
        ("a", {"priority": None}, "`priority` must be a whole number, got None"),
        ("a", {"arrival_time": "now"}, "`arrival_time` must be seconds, or None, got 'now'"),
    ],
)
def test_a_request_that_cannot_be_put_in_order_is_refused(llm, request_id, arguments, message):
    """A request that cannot be ordered is refused on arrival, before it can fail the scheduler."""
    with pytest.raises(InvalidRequestError, match=message):
        llm.llm_engine.add_request(request_id, "Hello", GREEDY, **arguments)
    assert not llm.llm_engine.has_unfinished_requests()
    assert llm.generate("Hello", GREEDY)[0].finished


def test_one_id_is_no_list_of_ids(llm):
    """A string is not taken for a list of request ids."""
    with pytest.raises(InvalidRequestError, match="abort_request takes a list of request ids, got 'abc'"):
        llm.llm_engine.abort_request("abc")


def test_an_array_is_a_list_of_prompts(llm):
    """An array of texts is a list of prompts, and an array of numbers is refused."""
    assert len(llm.generate(np.array(["a", "b"]), GREEDY)) == 2
    with pytest.raises(InvalidRequestError, match=r"prompts\[0\]: The prompt must be a string"):
        llm.generate(np.array([1, 2, 3]), GREEDY)


def test_a_set_of_prompts_has_no_order(llm):
    """A set of prompts is refused, as outputs come in the order of the prompts."""
    with pytest.raises(InvalidRequestError, match=r"a prompt or a list of prompts: .* got set"):
        llm.generate({"a", "b"}, GREEDY)


def test_a_schema_nested_too_deeply_is_refused(llm):
    """A schema nested too deeply for Python's JSON is refused by its parameter's name, and the LLM continues."""
    schema: dict = {"type": "integer"}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    params = SamplingParams(structured_outputs=StructuredOutputsParams(json=schema))
    with pytest.raises(InvalidRequestError, match=r"`structured_outputs\.json` cannot be used: .*recursion"):
        llm.generate("Hello", params)
    assert llm.generate("Hello", GREEDY)[0].finished


def test_what_forbids_all_tokens_is_named(llm):
    """The error about masked tokens names only parameters that the request has."""
    params = SamplingParams(temperature=0, logit_bias={token: -float("inf") for token in range(VOCAB_SIZE)})
    (output,) = llm.generate("Hello", params)[0].outputs
    assert output.finish_reason == "error"
    assert re.search(r"no token is left .* forbidden by `logit_bias`", str(output.stop_reason))
    assert llm.generate("Hello", GREEDY)[0].finished


def test_a_huge_budget_costs_no_memory(qwen2_checkpoint):
    """A step's inputs are sized for what all requests together can use, not for the token budget."""
    llm = LLM(str(qwen2_checkpoint), max_model_len=64, max_num_seqs=4, max_num_batched_tokens=10**12)
    assert llm.generate("Hello", GREEDY)[0].finished
