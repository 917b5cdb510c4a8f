"""The shape of the KV cache: what each attention layer stores, and how the memory is divided into blocks.

At start-up the model runner reports one `AttentionSpec` per layer; `kv_cache_utils.get_kv_cache_config` turns these
and the available memory into a `KVCacheConfig`, from which the workers allocate their tensors and the scheduler its
blocks.

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
    """What one attention layer keeps of a token: a key and a value for each KV head.

    Layers with equal specs can share a block table.

    vLLM: vllm/v1/kv_cache_interface.py::AttentionSpec (with its base KVCacheSpec).
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

    @abstractmethod
    def max_num_blocks(self, num_tokens: int, max_num_batched_tokens: int) -> int:
        """The most blocks that a request of `num_tokens` tokens ever holds at once.

        vLLM gives it in bytes, for the longest request that is allowed (`max_memory_usage_bytes`).

        Args:
            num_tokens: prompt and output.
            max_num_batched_tokens: the most tokens that one step computes.
        """

    @abstractmethod
    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """How many tokens, from the first, none that is still to be computed will see."""

    def num_blocks_in_step(self, num_computed_tokens: int, num_new_tokens: int) -> int:
        """How many blocks a request holds in the step that computes `num_new_tokens` after `num_computed_tokens`.

        Those that no token to come sees were given back before the step.
        """
        num_blocks = -(-(num_computed_tokens + num_new_tokens) // self.block_size)
        return num_blocks - self.num_skipped_tokens(num_computed_tokens) // self.block_size


@dataclass(frozen=True)
class FullAttentionSpec(AttentionSpec):
    """Every token is kept as long as its request lives.

    vLLM: vllm/v1/kv_cache_interface.py::FullAttentionSpec. Left out: the window or chunk of a layer that is treated as
    full attention, which only the layer itself has to know here.
    """

    def max_num_blocks(self, num_tokens: int, max_num_batched_tokens: int) -> int:
        """See `AttentionSpec.max_num_blocks`."""
        return -(-num_tokens // self.block_size)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """None."""
        return 0


@dataclass(frozen=True)
class SlidingWindowSpec(AttentionSpec):
    """A token is kept while a token to come sees it.

    vLLM: vllm/v1/kv_cache_interface.py::SlidingWindowSpec.
    """

    sliding_window: int
    """A token sees itself and the `sliding_window - 1` tokens before it."""

    def max_num_blocks(self, num_tokens: int, max_num_batched_tokens: int) -> int:
        """See `AttentionSpec.max_num_blocks`. What the window holds before a step, and the tokens of the step.

        One block more than these fill, since they may begin in the middle of one: with blocks of 4, five tokens can lie
        in three, [...c] [defg] [h...]. vLLM adds it for short requests too.
        """
        within = self.sliding_window - 1 + max_num_batched_tokens
        return min(-(-num_tokens // self.block_size), -(-within // self.block_size) + 1)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """With a window of 4 and 7 tokens computed, token 7 is next and sees tokens 4 to 7: 0 to 3 are skipped."""
        return max(0, num_computed_tokens - self.sliding_window + 1)


@dataclass
class KVCacheTensor:
    """One piece of memory for the workers to allocate.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheTensor.
    """

    size: int
    """Bytes."""
    shared_by: list[str]
    """Names of the layers that use it, one of each group: in different blocks, since groups share one block pool."""


@dataclass
class KVCacheGroupSpec:
    """Layers that share one block table: the same block ids serve each of them, since their specs are equal.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheGroupSpec.
    """

    layer_names: list[str]
    kv_cache_spec: AttentionSpec


@dataclass
class KVCacheConfig:
    """The whole KV cache: how many blocks, in which tensors, for which layers.

    vLLM: vllm/v1/kv_cache_interface.py::KVCacheConfig.
    """

    num_blocks: int
    """Blocks in the pool, the null block among them: requests can use `num_blocks - 1`."""
    kv_cache_tensors: list[KVCacheTensor]
    kv_cache_groups: list[KVCacheGroupSpec]
    """One group, or for a model of two kinds of attention several; all have as many layers as there are tensors, or
    fewer."""
