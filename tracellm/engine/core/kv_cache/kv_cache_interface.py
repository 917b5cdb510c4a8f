"""The layout of the KV cache: what each attention layer stores, and how the memory is divided into blocks.

At start-up the model runner reports an `AttentionSpec` per layer. `kv_cache_utils.get_kv_cache_configs` turns these and
the available memory into a `KVCacheConfig`, from which the workers allocate tensors and the scheduler creates blocks.

vLLM: vllm/v1/kv_cache_interface.py. Left out: every kind of layer but full attention and sliding windows (chunked local
attention, MLA, Mamba, cross attention).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = [
    "AttentionSpec",
    "FullAttentionSpec",
    "KVCacheConfig",
    "KVCacheGroupSpec",
    "KVCacheTensor",
    "SlidingWindowSpec",
]


@dataclass(frozen=True)
class AttentionSpec(ABC):
    """Cache layout of one attention layer: a key and a value per token and KV head.

    Layers with equal specs can share a block table.

    vLLM: vllm/v1/kv_cache_interface.py::AttentionSpec (with its base KVCacheSpec).
    """

    block_size: int
    """Tokens in one block."""
    num_kv_heads: int
    head_size: int
    """Elements in the key, or the value, of one head."""
    dtype: "torch.dtype"

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block in this layer: keys and values of `block_size` tokens."""
        return 2 * self.block_size * self.num_kv_heads * self.head_size * self.dtype.itemsize

    @abstractmethod
    def max_num_blocks(self, num_tokens: int, max_num_batched_tokens: int) -> int:
        """Return the most blocks that a request of `num_tokens` tokens holds at once.

        vLLM returns bytes, for the longest allowed request (`max_memory_usage_bytes`).

        Args:
            num_tokens: prompt and output.
            max_num_batched_tokens: the most tokens that one step computes.
        """

    @abstractmethod
    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return the number of leading tokens that no later token attends to."""

    def num_blocks_in_step(self, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Return the blocks that a request holds in the step that computes `num_new_tokens` more tokens.

        Blocks that no later token attends to were freed before the step.
        """
        num_blocks = -(-(num_computed_tokens + num_new_tokens) // self.block_size)
        return num_blocks - self.num_skipped_tokens(num_computed_tokens) // self.block_size


@dataclass(frozen=True)
class FullAttentionSpec(AttentionSpec):
    """Full attention: a token is kept until its request ends.

    vLLM: vllm/v1/kv_cache_interface.py::FullAttentionSpec. Left out: the window or chunk of a layer that is treated as
    full attention; here only the layer itself needs it.
    """

    def max_num_blocks(self, num_tokens: int, max_num_batched_tokens: int) -> int:
        """See `AttentionSpec.max_num_blocks`."""
        return -(-num_tokens // self.block_size)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return 0."""
        return 0


@dataclass(frozen=True)
class SlidingWindowSpec(AttentionSpec):
    """Sliding window attention: a token is kept while a later token attends to it.

    vLLM: vllm/v1/kv_cache_interface.py::SlidingWindowSpec.
    """

    sliding_window: int
    """A token attends to itself and the `sliding_window - 1` tokens before it."""

    def max_num_blocks(self, num_tokens: int, max_num_batched_tokens: int) -> int:
        """See `AttentionSpec.max_num_blocks`. Counts the window before a step, and the tokens of the step.

        The tokens may start in the middle of a block, which takes one block more: with blocks of 4, five tokens can
        touch three, [...c] [defg] [h...]. vLLM adds it for short requests too.
        """
        within = self.sliding_window - 1 + max_num_batched_tokens
        return min(-(-num_tokens // self.block_size), -(-within // self.block_size) + 1)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """See `AttentionSpec`. With window 4 and 7 computed tokens, token 7 attends to 4 to 7: 0 to 3 are skipped."""
        return max(0, num_computed_tokens - self.sliding_window + 1)


@dataclass
class KVCacheTensor:
    """A tensor for the workers to allocate.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheTensor.
    """

    size: int
    """Bytes."""
    shared_by: list[str]
    """Names of the layers that use it, at most one per group. The layers use different blocks of it."""


@dataclass
class KVCacheGroupSpec:
    """Layers with equal specs that share one block table.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheGroupSpec.
    """

    layer_names: list[str]
    kv_cache_spec: AttentionSpec


@dataclass
class KVCacheConfig:
    """The whole KV cache: number of blocks, tensors and groups of layers.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheConfig.
    """

    num_blocks: int
    """Blocks in the pool, including the null block: requests can use `num_blocks - 1`."""
    kv_cache_tensors: list[KVCacheTensor]
    kv_cache_groups: list[KVCacheGroupSpec]
    """One group, or several for a model with two kinds of attention. No group has more layers than there are tensors.
    """
