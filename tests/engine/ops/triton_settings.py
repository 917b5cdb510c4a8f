"""Settings of Triton's attention kernels for tests: block sizes that nobody tunes, short parts of a context."""

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
    """The kernels that read keys have these configurations; where none are given, the first that they would try."""
    for kernel in (paged_attention_v1_kernel, paged_attention_v2_kernel, attention_varlen_kernel):
        monkeypatch.setattr(kernel, "configs", [*configs] or kernel.configs[:1])
    reduce = paged_attention_v2_reduce_kernel
    monkeypatch.setattr(reduce, "configs", reduce.configs[:1])


def split_contexts(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """Contexts are split into parts of so many tokens; what is not written of what a kernel allocates is NaN.

    Not so whole numbers, with which Triton clears a GPU's cache while it tries block sizes.
    """
    monkeypatch.setattr(triton_attn, "PARTITION", tokens)
    empty = torch.empty

    def full_of_nan(*shape: Any, **options: Any) -> Tensor:
        made = empty(*shape, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", full_of_nan)
