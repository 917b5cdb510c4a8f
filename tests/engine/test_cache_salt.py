"""Tests of `cache_salt`: only requests with the same salt share cached blocks."""

import pytest

from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.core.kv_cache.kv_cache_utils import get_request_block_hasher
from tracellm.engine.core.request import Request

PROMPT = list(range(1, 50))
"""Three full blocks, and one token."""


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """An LLM with prefix caching."""
    return LLM(qwen2_checkpoint, dtype="float32", max_model_len=64, num_gpu_blocks_override=64)


def hashes(cache_salt: str | None) -> list[bytes]:
    """Return the hashes of the prompt's blocks."""
    params = SamplingParams(max_tokens=1)
    hasher = get_request_block_hasher(16)
    return list(Request("a", PROMPT, params, None, cache_salt=cache_salt, block_hasher=hasher).block_hashes)


def test_hashes_depend_on_the_salt() -> None:
    """All hashes of a prompt differ by its salt; without one they are those of the tokens alone."""
    plain, one, other = hashes(None), hashes("one"), hashes("other")
    assert len(plain) == 3
    assert one == hashes("one")
    assert not {*plain} & {*one} | {*one} & {*other} | {*plain} & {*other}


def test_blocks_are_shared_by_salt(llm: LLM) -> None:
    """A prompt finds the blocks of a prompt with the same salt, and no others; the output is the same."""
    params = SamplingParams(temperature=0, max_tokens=4)
    cached, outputs = [], []
    for salt in (None, "one", None, "one", "other", "other"):
        prompt = {"prompt_token_ids": PROMPT} | ({} if salt is None else {"cache_salt": salt})
        output = llm.generate(prompt, params, use_tqdm=False)[0]
        cached.append(output.num_cached_tokens)
        outputs.append(output.outputs[0].token_ids)
    assert cached == [0, 0, 48, 48, 0, 48]
    assert all(tokens == outputs[0] for tokens in outputs)


@pytest.mark.parametrize("salt", ["", 5, "\ud800"])
def test_a_salt_that_cannot_be(llm: LLM, salt: object) -> None:
    """An empty salt, or one that is no text, is refused."""
    with pytest.raises(InvalidRequestError, match=r"cache_salt|half a surrogate pair"):
        llm.generate({"prompt_token_ids": PROMPT, "cache_salt": salt}, use_tqdm=False)
