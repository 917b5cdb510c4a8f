"""Attention layers: pass query, key and value to the attention backend, a decoder's with the layer's KV cache.

In a request's life: once for each layer and step, after the projections and the rotary embedding. The model runner
allocates `kv_cache` at start-up.

`MultiHeadAttention`, at the end, is that of encoders of images and sounds, which run once per item.

vLLM: vllm/attention/layer.py::Attention and ::MultiHeadAttention. Left out: quantized caches.
"""

import torch
from torch import Tensor, nn

from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata
from tracellm.engine.attention.selector import get_attn_backend
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, FullAttentionSpec, SlidingWindowSpec
from tracellm.engine.model_executor.layers.forward_context import get_forward_context
from tracellm.engine.model_executor.ops import current_ops

__all__ = ["Attention", "MultiHeadAttention"]


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
        """Create the layer with the attention backend that belongs to `current_ops`.

        Args:
            num_heads: H.
            head_size: D.
            scale: factor of the scores.
            num_kv_heads: K.
            prefix: name of the layer, the key of its KV cache and metadata.
            sliding_window: a token sees itself and the `sliding_window - 1` tokens before it; None: all before it.
            logits_soft_cap: bounds the scores to (-cap, cap); None: no bound.
        """
        super().__init__()
        self.num_heads = num_heads
        self.head_size = head_size
        self.num_kv_heads = num_kv_heads
        self.layer_name = prefix
        self.sliding_window = sliding_window
        self.attn_backend = get_attn_backend(current_ops().name)
        self.impl = self.attn_backend.get_impl_cls()(
            num_heads, head_size, scale, num_kv_heads, sliding_window, logits_soft_cap
        )

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend. Shapes: query [T, H * D], key and value [T, K * D]; result [T, H * D]."""
        metadata = get_forward_context()
        if metadata is None:
            return query  # a dummy run to measure memory, which needs the shape only
        query = query.view(-1, self.num_heads, self.head_size)
        key = key.view(-1, self.num_kv_heads, self.head_size)
        value = value.view(-1, self.num_kv_heads, self.head_size)
        output = self.impl.forward(query, key, value, self.kv_cache, metadata[self.layer_name])
        return output.flatten(1)

    def get_kv_cache_spec(self, block_size: int, dtype: torch.dtype) -> AttentionSpec:
        """Return what the layer stores for each token, in blocks of `block_size` tokens."""
        if self.sliding_window is None:
            return FullAttentionSpec(block_size, self.num_kv_heads, self.head_size, dtype)
        return SlidingWindowSpec(block_size, self.num_kv_heads, self.head_size, dtype, self.sliding_window)


class MultiHeadAttention(nn.Module):
    """Attention within segments of a batch, without a KV cache, with H heads of size D."""

    def __init__(self, num_heads: int, head_size: int, scale: float) -> None:
        """Create the layer with the attention backend that belongs to `current_ops`; `scale`: factor of the scores."""
        super().__init__()
        self.num_heads = num_heads
        self.head_size = head_size
        self.impl = get_attn_backend(current_ops().name).get_impl_cls()(num_heads, head_size, scale, num_heads)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Attend. Shapes: query, key, value and result [T, H * D]."""
        query, key, value = (x.unflatten(-1, (self.num_heads, self.head_size)) for x in (query, key, value))
        return self.impl.encoder_attention(query, key, value, metadata).flatten(1)
