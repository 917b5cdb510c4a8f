"""Interface of an attention backend: the metadata of a step, its builder, and the implementation for one layer.

In a request's life: in each step `GPUModelRunner._build_attention_metadata` fills a `CommonAttentionMetadata` for each
KV cache group, and the backend's `AttentionMetadataBuilder` adds its plan. Each attention layer passes the result to
its `AttentionImpl`.

vLLM 0.11.1: vllm/attention/backends/abstract.py, vllm/v1/attention/backends/utils.py; later v1/attention/backend.py.
Left out: cross-attention, MLA, cascade attention, quantized caches.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata, encoder_attention
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec

__all__ = [
    "AttentionBackend",
    "AttentionImpl",
    "AttentionMetadata",
    "AttentionMetadataBuilder",
    "CommonAttentionMetadata",
]


@dataclass(eq=False)
class CommonAttentionMetadata:
    """Batch of a step as the layers of one KV cache group see it, the same for every backend.

    The tokens of a step lie in one flat batch of T tokens, one sequence after the other, R sequences. A sequence's
    last query token is its last token: with n tokens in this step and length L, its queries are at positions
    L-n .. L-1. Prefill (n = L), a later chunk or a cached prefix (1 < n < L) and decode (n = 1) are one case.
    """

    query_start_loc: Tensor
    """int32 [R + 1]: sequence i has the tokens query_start_loc[i] .. query_start_loc[i + 1] - 1 of the batch."""
    seq_lens: Tensor
    """int32 [R]: tokens of each sequence in the KV cache, those of this step included."""
    block_table: Tensor
    """int32 [R, most blocks of a sequence]: token p of sequence i is in block block_table[i, p // block_size]."""
    slot_mapping: Tensor
    """int64 [T]: the slot (block * block_size + offset) that each token of this step is written to."""
    query_lens_cpu: list[int]
    """R numbers: tokens of each sequence in this step, on the host to avoid a device synchronization."""
    seq_lens_cpu: list[int]
    """R numbers: `seq_lens` on the host."""
    block_table_cpu: Any = None
    """int32 [R, most blocks of a sequence]: `block_table` on the host, NumPy, or None."""
    max_seq_len: int | None = None
    """Longest sequence that kernel launches must support, as in a CUDA graph; None: the longest of the batch."""


class AttentionMetadata(CommonAttentionMetadata):
    """Batch of a step for one backend's layers. A backend's subclass adds what it plans once per step."""


class AttentionImpl(ABC):
    """Attention of one layer: H query heads and K key/value heads (K divides H) of size D.

    Query head h reads key/value head h // (H / K).
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        sliding_window: int | None = None,
        logits_soft_cap: float | None = None,
    ) -> None:
        """Set the layer's sizes; the arguments are those of `Attention`."""
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = scale
        self.num_kv_heads = num_kv_heads
        self.sliding_window = sliding_window
        self.logits_soft_cap = logits_soft_cap

    def forward(self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, metadata: Any) -> Tensor:
        """Write the step's keys and values into the cache, then attend over it.

        Shapes: query [T, H, D], key and value [T, K, D], kv_cache [2, blocks, block_size, K, D]; result [T, H, D].
        """
        key_cache, value_cache = kv_cache.unbind(0)
        self.reshape_and_cache(key, value, key_cache, value_cache, metadata.slot_mapping)
        return self.paged_attention(query, key_cache, value_cache, metadata)

    def encoder_attention(
        self, query: Tensor, key: Tensor, value: Tensor, metadata: EncoderAttentionMetadata
    ) -> Tensor:
        """Attention in an encoder: each token attends over its segment, with no KV cache; K = H.

        Shapes: query, key, value and result [T, H, D].
        """
        return encoder_attention(query, key, value, metadata, self.scale)

    @abstractmethod
    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """Write the keys and values of this step's tokens, [T, K, D], into their slots of the paged cache.

        Shapes: key_cache and value_cache [blocks, block_size, K, D], slot_mapping int64 [T].
        """

    @abstractmethod
    def paged_attention(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: Any) -> Tensor:
        """Causal attention of each query over its own sequence, up to its position, read from the paged cache.

        Only slots that a sequence owns and its queries see are read; all other cache slots and block table entries
        may hold anything.

        Shapes: query [T, H, D], key_cache and value_cache [blocks, block_size, K, D]; result [T, H, D].

        Args:
            query: queries of the step's tokens.
            key_cache: keys of this layer.
            value_cache: values of this layer.
            metadata: the backend's `AttentionMetadata` of the layer's KV cache group.
        """


class AttentionMetadataBuilder(ABC):
    """Builds a backend's metadata for the layers of one KV cache group, once per step."""

    def __init__(self, kv_cache_spec: AttentionSpec, impls: Sequence[AttentionImpl]) -> None:
        """Set up the builder for the layers that share `kv_cache_spec`; `impls` holds at least one."""
        self.kv_cache_spec = kv_cache_spec
        self.impls = impls

    @abstractmethod
    def build(self, common: CommonAttentionMetadata) -> AttentionMetadata:
        """Return the backend's metadata for a step."""


class AttentionBackend:
    """Classes of one backend; `get_attn_backend` returns a subclass."""

    name: ClassVar[str]
    impl_cls: ClassVar[type[AttentionImpl]]
    builder_cls: ClassVar[type[AttentionMetadataBuilder]]

    @classmethod
    def get_name(cls) -> str:
        """Return the backend's name: `torch`, `cpu` or `triton`."""
        return cls.name

    @classmethod
    def get_impl_cls(cls) -> type[AttentionImpl]:
        """Return the class that computes a layer's attention."""
        return cls.impl_cls

    @classmethod
    def get_builder_cls(cls) -> type[AttentionMetadataBuilder]:
        """Return the class that builds the metadata of a step."""
        return cls.builder_cls
