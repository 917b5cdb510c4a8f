"""Tests of `RequestOutput`: its fields, how outputs are merged, and their three kinds."""

from typing import Any

import pytest

from tracellm import LLM, CompletionOutput, RequestOutput, SamplingParams
from tracellm.engine.frontend.logprobs import Logprob
from tracellm.engine.sample.sampling_params import RequestOutputKind

PROMPT = {"prompt_token_ids": [11, 12, 13, 14, 15]}


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """Shared LLM; each test leaves it unchanged."""
    return LLM(str(qwen2_checkpoint), dtype="float32")


def completion(index: int = 0, text: str = "a", tokens: tuple[int, ...] = (1,), **fields) -> CompletionOutput:
    """Make a completion with a log probability for each token."""
    logprobs = [{token: Logprob(-1.0, 1, "t")} for token in tokens]
    return CompletionOutput(index, text, tokens, -1.0 * len(tokens), logprobs, **fields)


def output(*completions: CompletionOutput, finished: bool = False) -> RequestOutput:
    """Make an output of request `r`."""
    return RequestOutput("r", "p", [7, 8], None, list(completions), finished, num_cached_tokens=0)


def run(llm: LLM, kind: RequestOutputKind, **params) -> list[RequestOutput]:
    """Return all outputs of one request, step by step."""
    sampling_params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, output_kind=kind, **params)
    llm.llm_engine.add_request("r", PROMPT, sampling_params)
    outputs: list[Any] = []
    while llm.llm_engine.has_unfinished_requests():
        outputs += llm.llm_engine.step()
    return outputs


def test_the_objects_are_printed_as_vllms():
    """`repr` equals that of vLLM 0.11.1 for the same output."""
    printed = (
        "RequestOutput(request_id=r, prompt='p', prompt_token_ids=[7, 8], encoder_prompt=None, "
        "encoder_prompt_token_ids=None, prompt_logprobs=None, outputs=[CompletionOutput(index=0, text='a', "
        "token_ids=(1,), cumulative_logprob=-1.0, logprobs=[{1: Logprob(logprob=-1.0, rank=1, decoded_token='t')}], "
        "finish_reason=length, stop_reason=None)], finished=True, metrics=None, lora_request=None, "
        "num_cached_tokens=0, multi_modal_placeholders={})"
    )
    assert repr(output(completion(finish_reason="length"), finished=True)) == printed


def test_what_tracellm_does_not_have_is_none(llm):
    """An output has all attributes of vLLM's, and those for LoRA, encoders, images and KV transfer are None."""
    (output,) = llm.generate([PROMPT], SamplingParams(max_tokens=1), use_tqdm=False)
    nothing = (output.lora_request, output.encoder_prompt, output.encoder_prompt_token_ids, output.kv_transfer_params)
    assert (*nothing, output.outputs[0].lora_request, output.metrics, output.prompt_logprobs) == (None,) * 7
    assert output.multi_modal_placeholders == {}


def test_deltas_are_put_together():
    """`add` with `aggregate` merges deltas into the whole output, and adds completions with another index."""
    merged = output(completion())
    merged.add(output(completion(text="b", tokens=(2, 3)), completion(index=1, text="x")), aggregate=True)
    last = CompletionOutput(0, "c", [4], -4.0, None, finish_reason="stop", stop_reason=4)
    merged.add(output(last, finished=True), aggregate=True)
    first, second = merged.outputs
    assert (first.text, list(first.token_ids), first.cumulative_logprob) == ("abc", [1, 2, 3, 4], -4.0)
    assert (first.finish_reason, first.stop_reason) == ("stop", 4)
    assert [list(position) for position in first.logprobs or ()] == [[1], [2], [3]]
    assert (second.index, second.text, merged.finished) == (1, "x", True)


def test_whole_outputs_replace_each_other():
    """`add` without `aggregate` keeps the later output of each completion."""
    merged = output(completion(), completion(index=1))
    later = completion(text="ab", tokens=(1, 2))
    merged.add(output(later), aggregate=False)
    assert merged.outputs[0] is later
    assert merged.outputs[1].index == 1
    assert not merged.finished


def test_the_three_kinds_say_the_same(llm):
    """Merged deltas, the last cumulative output and the final output are equal.

    Prompt log probabilities come with the first delta only, with every cumulative output, and with the final one.
    """
    params = {"logprobs": 2, "prompt_logprobs": 1}
    (final,) = run(llm, RequestOutputKind.FINAL_ONLY, **params)
    cumulative = run(llm, RequestOutputKind.CUMULATIVE, **params)
    deltas = run(llm, RequestOutputKind.DELTA, **params)
    assert [len(output.outputs[0].token_ids) for output in cumulative] == [1, 2, 3, 4]
    assert [len(output.outputs[0].logprobs or ()) for output in cumulative] == [1, 2, 3, 4]
    assert [len(output.outputs[0].token_ids) for output in deltas] == [1, 1, 1, 1]
    assert [len(output.outputs[0].logprobs or ()) for output in deltas] == [1, 1, 1, 1]
    assert [output.finished for output in deltas] == [output.finished for output in cumulative] == [False] * 3 + [True]
    assert [len(output.prompt_logprobs or ()) for output in deltas] == [5, 0, 0, 0]
    assert [len(output.prompt_logprobs or ()) for output in cumulative] == [5, 5, 5, 5]
    merged = deltas[0]
    for later in deltas[1:]:
        merged.add(later, aggregate=True)
    assert merged.outputs == cumulative[-1].outputs == final.outputs
    assert merged.prompt_logprobs == cumulative[-1].prompt_logprobs == final.prompt_logprobs


def test_a_cumulative_output_does_not_grow(llm):
    """A cumulative output does not change while its request runs on."""
    first = run(llm, RequestOutputKind.CUMULATIVE, logprobs=0)[0].outputs[0]
    assert (len(first.token_ids), len(first.logprobs or ())) == (1, 1)
