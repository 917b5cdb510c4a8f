"""Attention of encoders of images and sounds: without causality and without a KV cache, within segments.

The tokens of several items lie in one flat batch, in segments: an image, a window of it, a sound. Each token attends
over its own segment. `EncoderAttentionMetadata` is planned once per batch of items. Segments of equal length go
together, so that most batches need one or two calls of PyTorch's kernels per layer.

In a request's life: in the step that first needs an item, for each layer of its encoder. Each backend inherits it
(`AttentionImpl.encoder_attention`) and may replace it.

vLLM: vllm/attention/ops/vit_attn_wrappers.py and vllm/attention/layer.py::MultiHeadAttention, which pass `cu_seqlens`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["EncoderAttentionMetadata", "encoder_attention"]


@dataclass(eq=False)
class EncoderAttentionMetadata:
    """Segments of a batch of items."""

    groups: list[tuple[slice | Tensor, int]]
    """Rows of the batch and length, for each group of segments of one length."""

    @classmethod
    def from_seq_lens(cls, seq_lens: Sequence[int], device: torch.device) -> "EncoderAttentionMetadata":
        """Plan the attention of segments with these lengths, in the order of the batch; empty segments are none."""
        starts = [0, *accumulate(seq_lens)]
        lengths = sorted(set(seq_lens) - {0})
        if len(lengths) == 1:
            return cls([(slice(0, starts[-1]), lengths[0])])
        groups: list[tuple[slice | Tensor, int]] = []
        for length in lengths:
            first = torch.tensor([start for start, n in zip(starts, seq_lens, strict=False) if n == length])
            rows = (first[:, None] + torch.arange(length)).flatten()
            groups.append((rows.to(device), length))
        return cls(groups)


def encoder_attention(
    query: Tensor, key: Tensor, value: Tensor, metadata: EncoderAttentionMetadata, scale: float
) -> Tensor:
    """Attention of each token over its segment. Shapes: query, key, value and result [T, H, D]."""
    if len(metadata.groups) == 1:
        return _attend(query, key, value, metadata.groups[0][1], scale)
    output = torch.empty_like(query)
    for rows, length in metadata.groups:
        output[rows] = _attend(query[rows], key[rows], value[rows], length, scale)
    return output


def _attend(query: Tensor, key: Tensor, value: Tensor, length: int, scale: float) -> Tensor:
    """Attention within segments of one length, [N * length, H, D]."""
    query, key, value = (x.unflatten(0, (-1, length)).transpose(1, 2) for x in (query, key, value))  # [N, H, length, D]
    return F.scaled_dot_product_attention(query, key, value, scale=scale).transpose(1, 2).flatten(0, 1)
