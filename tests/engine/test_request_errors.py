"""Tests of errors that end one request, while others and the engine continue."""

import re
from concurrent.futures import Future
from typing import Any

import pytest

from tests.engine.watch import is_idle
from tracellm import LLM, RequestOutput, SamplingParams, StructuredOutputsParams
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.sample.sampling_params import RequestOutputKind

PROMPT = "The capital of France is"
FREE = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
STUCK = SamplingParams(
    temperature=0, structured_outputs=StructuredOutputsParams(choice=["ab"]), allowed_token_ids=[5], max_tokens=6
)


@pytest.fixture(scope="module")
def llm() -> LLM:
    """Shared LLM; each test leaves it idle."""
    return LLM(max_model_len=64, num_gpu_blocks_override=64, disable_log_stats=False)


def run(llm: LLM, **params: SamplingParams) -> dict[str, RequestOutput]:
    """Run named requests, and return their last outputs."""
    for name, of_request in params.items():
        llm.llm_engine.add_request(name, PROMPT, of_request)
    outputs: dict[str, Any] = {}
    while llm.llm_engine.has_unfinished_requests():
        outputs |= {output.request_id: output for output in llm.llm_engine.step()}
    return outputs


def test_the_others_go_on(llm):
    """A request without an allowed token ends with the reason, and the others get the same tokens as alone."""
    alone = llm.generate(PROMPT, FREE)[0].outputs[0].token_ids
    outputs = run(llm, before=FREE, stuck=STUCK, after=FREE)
    (stuck,) = outputs["stuck"].outputs
    assert (stuck.finish_reason, list(stuck.token_ids), stuck.text) == ("error", [], "")
    assert "Request 'stuck': no token is left" in str(stuck.stop_reason)
    for name in ("before", "after"):
        assert outputs[name].outputs[0].token_ids == alone
    assert is_idle(llm)


def test_generate_returns_the_others(llm, caplog):
    """`LLM.generate` returns the failed output with the reason `error` among the others, and logs the message."""
    outputs = [output.outputs[0] for output in llm.generate([PROMPT] * 3, [FREE, STUCK, FREE], use_tqdm=False)]
    assert [output.finish_reason for output in outputs] == ["length", "error", "length"]
    assert [len(output.token_ids) for output in outputs] == [6, 0, 6]
    message = r"no token is left .*`allowed_token_ids`.*`structured_outputs`"
    assert re.search(message, str(outputs[1].stop_reason))
    assert [record for record in caplog.messages if re.search(message, record)]
    assert is_idle(llm)
    assert len(llm.generate(PROMPT, FREE)[0].outputs[0].token_ids) == 6


def test_in_the_middle_of_a_request(llm):
    """A request that fails later keeps the tokens generated before."""
    first = llm.generate(PROMPT, FREE)[0].outputs[0].token_ids[0]
    # Its first token is allowed once; then it is a bad word after itself.
    word = llm.get_tokenizer().decode([first])
    params = SamplingParams(temperature=0, allowed_token_ids=[first], bad_words=[word * 2], max_tokens=9)
    assert llm.get_tokenizer().encode(word * 2, add_special_tokens=False) == [first] * 2
    output = run(llm, middle=params)["middle"]
    assert (output.outputs[0].finish_reason, list(output.outputs[0].token_ids)) == ("error", [first])
    assert is_idle(llm)


def test_one_of_several_sequences(llm):
    """With `n > 1` the output comes when all sequences have ended, each with its own reason."""
    params = SamplingParams(temperature=1, n=3, allowed_token_ids=[5], logit_bias={5: -float("inf")})
    params.output_kind = RequestOutputKind.FINAL_ONLY
    output = run(llm, several=params)["several"]
    assert [completion.finish_reason for completion in output.outputs] == ["error"] * 3
    assert is_idle(llm)


def test_a_grammar_that_cannot_be_compiled(llm, monkeypatch):
    """A failed compilation of an accepted grammar ends its request before it has run."""

    def grammar_init(self, request):
        failed: Future = Future()
        failed.set_exception(RuntimeError("out of luck"))
        request.structured_output_request.compiling = failed

    monkeypatch.setattr(StructuredOutputManager, "grammar_init", grammar_init)
    constrained = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["ab"]))
    for others in ({}, {"other": FREE}):
        outputs = run(llm, constrained=constrained, **others)
        assert outputs["constrained"].outputs[0].finish_reason == "error"
        assert outputs["constrained"].outputs[0].stop_reason == "Request 'constrained': out of luck"
        assert all(outputs[name].outputs[0].finish_reason == "length" for name in others)
        assert is_idle(llm)
