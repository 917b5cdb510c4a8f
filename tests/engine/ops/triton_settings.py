"""Settings of Triton's attention kernels for tests: fixed block sizes, and short parts of a context."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tracellm.engine.attention.backends import triton_attn
from tracellm.engine.attention.ops.attention_varlen import attention_varlen_kernel
from tracellm.engine.attention.ops.paged_attention_v1 import paged_attention_v1_kernel
from tracellm.engine.attention.ops.paged_attention_v2 import (
    paged_attention_v2_kernel,
    paged_attention_v2_reduce_kernel,
)

__all__ = ["split_contexts", "untuned"]


def untuned(monkeypatch: pytest.MonkeyPatch, configs: Sequence[Any] = ()) -> None:
    """Use these configurations for the kernels that read keys, or the first one that tuning would try."""
    for kernel in (paged_attention_v1_kernel, paged_attention_v2_kernel, attention_varlen_kernel):
        monkeypatch.setattr(kernel, "configs", [*configs] or kernel.configs[:1])
    reduce = paged_attention_v2_reduce_kernel
    monkeypatch.setattr(reduce, "configs", reduce.configs[:1])


def split_contexts(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """Split contexts into parts of this many tokens, and fill the kernels' buffers with NaN.

    Integer buffers are not filled: Triton uses them to clear a GPU's cache while it tunes block sizes.
    """
    monkeypatch.setattr(triton_attn, "PARTITION", tokens)
    empty = torch.empty

    def full_of_nan(*shape: Any, **options: Any) -> Tensor:
        made = empty(*shape, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", full_of_nan)
