"""Tests of log probabilities, from the sampler's rows to the request's output."""

import math

import numpy as np
import pytest
import torch

from tests.engine.tokenizer_families import get_family
from tracellm import LLM, SamplingParams
from tracellm.engine.frontend.logprobs import LogprobsProcessor
from tracellm.engine.ipc.messages import EngineCoreOutput
from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors

PROMPT = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]


def update(processor: LogprobsProcessor, token_ids: list[int], logprobs: list[float], rank: int) -> None:
    """Process one step with one sampled token."""
    rows = LogprobsLists(np.array([token_ids]), np.array([logprobs]), np.array([rank]))
    processor.update_from_output(EngineCoreOutput("0", token_ids[:1], new_logprobs=rows))


def processor(family: str | None = None, logprobs: int | None = 2) -> LogprobsProcessor:
    """Make a request's processor with a family's tokenizer."""
    return LogprobsProcessor(family and get_family(family), logprobs, None)


def test_the_sampled_token_comes_first_with_its_own_rank():
    """A sampled token outside the most likely ones comes first, with its rank in the whole vocabulary."""
    of = processor()
    update(of, [9, 4, 5], [-3.0, -0.5, -1.0], rank=17)
    assert of.logprobs is not None
    assert [(token, item.logprob, item.rank) for token, item in of.logprobs[0].items()] == [
        (9, -3.0, 17),
        (4, -0.5, 1),
        (5, -1.0, 2),
    ]


def test_a_likely_token_is_there_once():
    """A sampled token that is also among the most likely ones appears once, first."""
    of = processor()
    update(of, [5, 4, 5], [-1.0, -0.5, -1.0], rank=2)
    assert of.logprobs is not None
    assert [(token, item.rank) for token, item in of.logprobs[0].items()] == [(5, 2), (4, 1)]


@pytest.mark.parametrize(("wanted", "tokens"), [(0, [9]), (1, [9, 4]), (-1, [9, 4, 5, 6])])
def test_a_row_is_cut_to_what_the_request_wants(wanted, tokens):
    """Rows have the largest number in the batch, and each request gets its own number, or all."""
    of = processor(logprobs=wanted)
    update(of, [9, 4, 5, 6], [-3.0, -0.5, -1.0, -2.0], rank=17)
    assert of.logprobs is not None
    assert list(of.logprobs[0]) == tokens


def test_the_sum_is_over_the_sampled_tokens():
    """`cumulative_logprob` is the sum over the sampled tokens."""
    of = processor()
    update(of, [9, 4, 5], [-3.0, -0.5, -1.0], rank=17)
    update(of, [4, 4, 5], [-0.25, -0.25, -1.0], rank=1)
    assert of.cumulative_logprob == -3.25


def test_tokens_are_decoded_one_by_one():
    """Half a character is U+FFFD, leading spaces follow the decoder, and special tokens have their names."""
    tokenizer = get_family("llama")
    cat, byte, end = tokenizer.convert_tokens_to_ids(["▁cat", "<0xE4>", "</s>"])
    of = processor("llama")
    update(of, [cat, byte, end], [-1.0, -2.0, -3.0], rank=1)
    assert of.logprobs is not None
    assert [item.decoded_token for item in of.logprobs[0].values()] == ["cat", "\ufffd", "</s>"]


def test_without_a_tokenizer_tokens_have_no_text():
    """With `detokenize=False` every `decoded_token` is None."""
    of = processor(None)
    update(of, [1, 2, 3], [-1.0, -2.0, -3.0], rank=1)
    assert of.logprobs is not None
    assert {item.decoded_token for item in of.logprobs[0].values()} == {None}


def test_nobody_asked():
    """Without `logprobs` and `prompt_logprobs` there are none, and no sum."""
    of = processor(None, logprobs=None)
    of.update_from_output(EngineCoreOutput("0", [1]))
    assert (of.logprobs, of.cumulative_logprob, of.prompt_logprobs, of.pop_prompt_logprobs()) == (None,) * 4


def test_a_prompt_of_one_token_has_nothing_to_tell():
    """The prompt log probabilities of one token are [None]."""
    of = LogprobsProcessor(None, None, 3)
    empty = LogprobsTensors(torch.empty(0, 4), torch.empty(0, 4), torch.empty(0))
    of.update_from_output(EngineCoreOutput("0", [1], new_prompt_logprobs_tensors=empty))
    assert of.pop_prompt_logprobs() == [None]
    assert of.pop_prompt_logprobs() == []


@pytest.fixture(scope="module")
def checkpoint(qwen2_checkpoint) -> str:
    """The checkpoint of the tests below."""
    return str(qwen2_checkpoint)


def generate(llm: LLM, prompts: list[list[int]], **params):
    """Generate greedily from token ids."""
    sampling_params = SamplingParams(temperature=0, ignore_eos=True, **params)
    return llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling_params, use_tqdm=False)


def test_a_prompt_is_told_what_a_generation_was_told(checkpoint):
    """Tokens get the same log probabilities, up to rounding, when generated and as a prompt.

    Chunks and the prefix cache do not change them.
    """
    llm = LLM(checkpoint, dtype="float32", max_num_batched_tokens=16, max_num_seqs=4, max_model_len=64, block_size=16)
    (generated,) = generate(llm, [PROMPT * 2], max_tokens=12, logprobs=2)
    tokens = [*generated.prompt_token_ids, *generated.outputs[0].token_ids]
    (request_output,) = generate(llm, [tokens], max_tokens=1, prompt_logprobs=2)
    assert request_output.num_cached_tokens == 0, "all of the prompt had to be computed"
    assert len(request_output.prompt_logprobs) == len(tokens)
    assert request_output.prompt_logprobs[0] is None
    for ours, theirs in zip(request_output.prompt_logprobs[-12:], generated.outputs[0].logprobs, strict=True):
        assert list(ours) == list(theirs)
        assert [item.rank for item in ours.values()] == [item.rank for item in theirs.values()]
        assert [item.logprob for item in ours.values()] == pytest.approx([i.logprob for i in theirs.values()], abs=1e-4)


def test_all_of_the_vocabulary(checkpoint):
    """With -1 the whole vocabulary is returned, most likely first, and the probabilities add up to 1."""
    llm = LLM(checkpoint, dtype="float32", max_model_len=64, max_logprobs=-1)
    (output,) = generate(llm, [PROMPT], max_tokens=1, logprobs=-1, detokenize=False)
    (position,) = output.outputs[0].logprobs
    assert len(position) == llm.model_config.get_vocab_size()
    assert sum(math.exp(item.logprob) for item in position.values()) == pytest.approx(1, abs=1e-4)
    assert sorted(item.rank for item in position.values()) == list(range(1, len(position) + 1))


def test_a_preempted_request_tells_its_prompt_once(checkpoint):
    """A preempted request recomputes its prompt, and returns the same prompt log probabilities once."""
    few = LLM(checkpoint, dtype="float32", max_model_len=48, block_size=16, num_gpu_blocks_override=5)
    prompts = [PROMPT, [*reversed(PROMPT)], PROMPT[3:]]
    together = generate(few, prompts, max_tokens=30, logprobs=0, prompt_logprobs=0)
    alone = [generate(few, [prompt], max_tokens=30, logprobs=0, prompt_logprobs=0)[0] for prompt in prompts]
    for ours, theirs in zip(together, alone, strict=True):
        assert len(ours.prompt_logprobs) == len(ours.prompt_token_ids)
        assert len(ours.outputs[0].logprobs) == 30
        for mine, other in zip(
            [*ours.prompt_logprobs[1:], *ours.outputs[0].logprobs],
            [*theirs.prompt_logprobs[1:], *theirs.outputs[0].logprobs],
            strict=True,
        ):
            assert list(mine) == list(other)
            assert [item.logprob for item in mine.values()] == pytest.approx(
                [item.logprob for item in other.values()], abs=1e-4
            )
