"""The shape of the KV cache: what each attention layer stores, and how the memory is divided into blocks.

At start-up the model runner reports one `FullAttentionSpec` per layer; `kv_cache_utils.get_kv_cache_config` turns these
and the available memory into a `KVCacheConfig`, from which the workers allocate their tensors and the scheduler its
blocks.

vLLM: vllm/v1/kv_cache_interface.py. Left out: every kind of layer but full attention (sliding window, chunked local
attention, MLA, Mamba, cross attention).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["FullAttentionSpec", "KVCacheConfig", "KVCacheGroupSpec", "KVCacheTensor"]


@dataclass(frozen=True)
class FullAttentionSpec:
    """What one full-attention layer keeps of every token: a key and a value for each KV head.

    vLLM: vllm/v1/kv_cache_interface.py::FullAttentionSpec (with its bases KVCacheSpec and AttentionSpec). Left out:
    sliding windows and attention chunks treated as full attention.
    """

    block_size: int
    """Tokens in one block."""
    num_kv_heads: int
    head_size: int
    """Numbers in the key (or the value) of one head."""
    dtype: "torch.dtype"

    @property
    def page_size_bytes(self) -> int:
        """Bytes that one block takes in this layer: keys and values of `block_size` tokens."""
        return 2 * self.block_size * self.num_kv_heads * self.head_size * self.dtype.itemsize


@dataclass
class KVCacheTensor:
    """One piece of memory for the workers to allocate.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheTensor.
    """

    size: int
    """Bytes."""
    shared_by: list[str]
    """Names of the layers that use it; one layer here, since there is only one group."""


@dataclass
class KVCacheGroupSpec:
    """Layers that share one block table: the same block ids serve each of them.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheGroupSpec.
    """

    layer_names: list[str]
    kv_cache_spec: FullAttentionSpec


@dataclass
class KVCacheConfig:
    """The whole KV cache: how many blocks, in which tensors, for which layers.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheConfig.
    """

    num_blocks: int
    """Blocks in the pool, the null block among them: requests can use `num_blocks - 1`."""
    kv_cache_tensors: list[KVCacheTensor]
    kv_cache_groups: list[KVCacheGroupSpec]
    """Exactly one group here."""
