"""The attention layer: writes the step's keys and values into its paged KV cache, then lets the queries attend over it.

In a request's life: once for each layer and step, after the projections and the rotary embedding. The layer owns its
share of the KV cache (`kv_cache`), which the model runner hands it at start-up.

vLLM: vllm/attention/layer.py::Attention. Left out: quantized caches, encoders, the choice of a backend.
"""

import torch
from torch import Tensor, nn

from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, FullAttentionSpec, SlidingWindowSpec
from tracellm.engine.model_executor.layers.forward_context import get_attention_metadata
from tracellm.engine.model_executor.ops import current_ops

__all__ = ["Attention"]


class Attention(nn.Module):
    """Causal attention over the paged KV cache, with H query heads and K key/value heads of size D (K divides H)."""

    kv_cache: Tensor
    """[2, blocks, block_size, K, D]: keys, then values; set by `GPUModelRunner.initialize_kv_cache`."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        prefix: str,
        *,
        sliding_window: int | None = None,
        logits_soft_cap: float | None = None,
    ) -> None:
        """What the layer computes, and its name.

        Args:
            num_heads: H.
            head_size: D.
            scale: multiplies the scores.
            num_kv_heads: K.
            prefix: the layer's name, under which its KV cache is kept.
            sliding_window: a token sees itself and the `sliding_window - 1` tokens before it; None: all before it.
            logits_soft_cap: bends the scores into (-cap, cap); None: leaves them alone.
        """
        super().__init__()
        self.ops = current_ops()
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = scale
        self.num_kv_heads = num_kv_heads
        self.layer_name = prefix
        self.sliding_window = sliding_window
        self.logits_soft_cap = logits_soft_cap

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Shapes: query [T, H * D], key and value [T, K * D]; the result [T, H * D]."""
        metadata = get_attention_metadata(self.layer_name)
        if metadata is None:
            return query  # a trial run to measure memory: the shape is all that matters
        query = query.view(-1, self.num_heads, self.head_size)
        key = key.view(-1, self.num_kv_heads, self.head_size)
        value = value.view(-1, self.num_kv_heads, self.head_size)
        key_cache, value_cache = self.kv_cache.unbind(0)
        self.ops.reshape_and_cache(key, value, key_cache, value_cache, metadata.slot_mapping)
        output = self.ops.paged_attention(
            query,
            key_cache,
            value_cache,
            metadata,
            self.scale,
            sliding_window=self.sliding_window,
            logits_soft_cap=self.logits_soft_cap,
        )
        return output.flatten(1)

    def get_kv_cache_spec(self, block_size: int, dtype: torch.dtype) -> AttentionSpec:
        """What the layer stores of a token, in blocks of so many."""
        if self.sliding_window is None:
            return FullAttentionSpec(block_size, self.num_kv_heads, self.head_size, dtype)
        return SlidingWindowSpec(block_size, self.num_kv_heads, self.head_size, dtype, self.sliding_window)
