"""The attention layer: writes the step's keys and values into its paged KV cache, then lets the queries attend over it.

In a request's life: once for each layer and step, after the projections and the rotary embedding. The layer owns its
share of the KV cache (`kv_cache`), which the model runner hands it at start-up.

vLLM: vllm/attention/layer.py::Attention. Left out: quantized caches, encoders, sliding windows, the choice of a
backend.
"""

from torch import Tensor, nn

from tracellm.engine.layers.forward_context import get_attention_metadata
from tracellm.engine.ops import ops

__all__ = ["Attention"]


class Attention(nn.Module):
    """Causal attention over the paged KV cache, with H query heads and K key/value heads of size D (K divides H)."""

    kv_cache: Tensor
    """[2, blocks, block_size, K, D]: keys, then values; set by `GPUModelRunner.initialize_kv_cache`."""

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int, prefix: str) -> None:
        """`prefix` is the layer's name, under which its KV cache is kept; `scale` multiplies the scores."""
        super().__init__()
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = scale
        self.num_kv_heads = num_kv_heads
        self.layer_name = prefix

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Shapes: query [T, H * D], key and value [T, K * D]; the result [T, H * D]."""
        metadata = get_attention_metadata()
        if metadata is None:
            return query  # a trial run to measure memory: the shape is all that matters
        query = query.view(-1, self.num_heads, self.head_size)
        key = key.view(-1, self.num_kv_heads, self.head_size)
        value = value.view(-1, self.num_kv_heads, self.head_size)
        key_cache, value_cache = self.kv_cache.unbind(0)
        ops.reshape_and_cache(key, value, key_cache, value_cache, metadata.slot_mapping)
        output = ops.paged_attention(query, key_cache, value_cache, metadata, self.scale)
        return output.flatten(1)
