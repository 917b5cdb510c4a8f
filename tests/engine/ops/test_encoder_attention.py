"""Tests of the attention of encoders: within segments, in every backend."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.ops.implementations import DTYPES, Implementation, assert_near, numbers
from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata
from tracellm.engine.model_executor.layers.attention import MultiHeadAttention
from tracellm.engine.model_executor.ops import using_ops


def reference(query: Tensor, key: Tensor, value: Tensor, seq_lens: list[int], num_heads: int, scale: float) -> Tensor:
    """Attend over each segment by itself, in float64."""
    outputs = []
    for q, k, v in zip(*(x.double().cpu().split(seq_lens) for x in (query, key, value)), strict=True):
        q, k, v = (x.unflatten(1, (num_heads, -1)).transpose(0, 1) for x in (q, k, v))
        outputs.append((((q @ k.mT) * scale).softmax(-1) @ v).transpose(0, 1).flatten(1))
    return torch.cat(outputs)


def attend(implementation: Implementation, seq_lens: list[int], dtype: torch.dtype) -> None:
    """Compare one layer with the reference."""
    num_heads, head_size, device = 3, 16, implementation.device
    with using_ops(implementation.ops):
        layer = MultiHeadAttention(num_heads, head_size, 0.3)
    query, key, value = (numbers(sum(seq_lens), num_heads * head_size, dtype=dtype, device=device) for _ in range(3))
    output = layer(query, key, value, EncoderAttentionMetadata.from_seq_lens(seq_lens, torch.device(device)))
    assert output.dtype == dtype
    assert_near(output, reference(query, key, value, seq_lens, num_heads, 0.3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seq_lens", [[7], [5, 5, 5], [4, 1, 4, 9, 1]], ids=str)
def test_each_token_attends_over_its_segment(
    implementation: Implementation, seq_lens: list[int], dtype: torch.dtype
) -> None:
    """Segments of one length or several have the attention of each by itself, in the dtype of the layer."""
    torch.manual_seed(0)
    attend(implementation, seq_lens, dtype)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(0, 2**31 - 1))
def test_segments_of_any_lengths(seq_lens: list[int], seed: int) -> None:
    """Any segments, empty ones too, have the attention of each by itself."""
    torch.manual_seed(seed)
    attend(Implementation("torch", "cpu"), seq_lens, torch.float32)
