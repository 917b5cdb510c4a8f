"""Attention over the paged cache by Triton kernels: each sequence of a step goes to the kernel that suits it.

At most three launches: the sequences that decode together in `paged_attention_v1`, or in the two of `v2`; the tiles of
those with more queries in `attention_varlen`. Who goes where, and why, is the step's plan (attention_plan.py).

In a request's life: each attention layer of each step. vLLM: vllm/v1/attention/backends/triton_attn.py
(`TritonAttentionImpl.forward`).
"""

import torch
from torch import Tensor

from tracellm.engine.model_executor.ops.interface import AttentionMetadata
from tracellm.engine.model_executor.ops.triton.attention_call import AttentionCall
from tracellm.engine.model_executor.ops.triton.attention_plan import plan_attention
from tracellm.engine.model_executor.ops.triton.attention_varlen import attention_varlen
from tracellm.engine.model_executor.ops.triton.paged_attention_v1 import paged_attention_v1
from tracellm.engine.model_executor.ops.triton.paged_attention_v2 import paged_attention_v2

__all__ = ["paged_attention"]


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    metadata: AttentionMetadata,
    scale: float,
    sliding_window: int | None = None,
    logits_soft_cap: float | None = None,
) -> Tensor:
    """See `Ops.paged_attention`. The last dimension of query and caches is contiguous, and both caches lie alike."""
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    plan = plan_attention(metadata, query.shape[1], key_cache.shape[2], sliding_window)
    call = AttentionCall(output, query, key_cache, value_cache, metadata, plan, scale, sliding_window, logits_soft_cap)
    if plan.decodes:
        if plan.partitions == 1:
            paged_attention_v1(call)
        else:
            paged_attention_v2(call)
    if plan.tiles:
        attention_varlen(call)
    return output
