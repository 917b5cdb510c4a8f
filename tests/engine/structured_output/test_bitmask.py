"""Tests of the bitmask on the logits: tokens not allowed by a grammar get probability 0, others are unchanged."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracellm.engine.core.sched.output import GrammarOutput
from tracellm.engine.core.structured_output.utils import apply_grammar_bitmask


def pack(allowed: np.ndarray) -> np.ndarray:
    """Pack booleans [rows, vocabulary] into 32-bit words, lowest bit first."""
    padded = np.pad(allowed, ((0, 0), (0, -allowed.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.int32)


@given(data=st.data(), vocab_size=st.integers(1, 130), num_rows=st.integers(1, 6))
def test_exactly_the_forbidden_tokens_become_impossible(data, vocab_size, num_rows):
    """Exactly the tokens not allowed get probability 0, for any rows, mask and order of requests."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    row_of = {f"r{row}": row for row in range(num_rows)}
    constrained = data.draw(st.permutations(list(row_of)).map(lambda ids: ids[: 1 + num_rows // 2]))
    allowed = rng.random((len(constrained), vocab_size)) < 0.5
    logits = torch.from_numpy(rng.standard_normal((num_rows, vocab_size)))
    expected = logits.clone()
    for request_id, mask in zip(constrained, allowed, strict=True):
        expected[row_of[request_id], torch.from_numpy(~mask)] = -torch.inf
    apply_grammar_bitmask(GrammarOutput(constrained, pack(allowed)), row_of, logits)
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_logits_keep_their_dtype(dtype):
    """The mask is applied in place, keeps the logits' dtype, and ignores bits beyond the vocabulary."""
    logits = torch.arange(5, dtype=dtype).repeat(2, 1)
    words = np.array([[0b11100101], [-1]], dtype=np.int32)
    apply_grammar_bitmask(GrammarOutput(["b", "a"], words), {"a": 0, "b": 1}, logits)
    assert logits.dtype == dtype
    assert logits[0].tolist() == [0, 1, 2, 3, 4]
    assert logits[1].tolist() == [0, -torch.inf, 2, -torch.inf, -torch.inf]
