"""Between the KV cache manager and the block tables: one table per group of layers, all over one pool of blocks.

Blocks go in and out as a tuple with one entry per group. Most models have one group; those that mix full attention
and sliding windows (Gemma 2 and 3) have several.

vLLM: vllm/v1/core/kv_cache_coordinator.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tracellm.engine.core.kv_cache.block_pool import BlockPool
from tracellm.engine.core.kv_cache.kv_cache_block import BlockHash, KVCacheBlock
from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig
from tracellm.engine.core.kv_cache.single_type_kv_cache_manager import (
    FullAttentionManager,
    get_manager_for_kv_cache_spec,
)
from tracellm.engine.core.request import Request

__all__ = [
    "HybridKVCacheCoordinator",
    "KVCacheCoordinator",
    "KVCacheCoordinatorNoPrefixCache",
    "UnitaryKVCacheCoordinator",
    "get_kv_cache_coordinator",
]


class KVCacheCoordinator(ABC):
    """What is done for each group in turn; only the search for a cached prefix must see all groups together.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::KVCacheCoordinator.
    """

    def __init__(self, kv_cache_config: KVCacheConfig) -> None:
        self.kv_cache_groups = kv_cache_config.kv_cache_groups
        # All groups have blocks of as many tokens.
        self.block_size = self.kv_cache_groups[0].kv_cache_spec.block_size
        self.block_pool = BlockPool(kv_cache_config.num_blocks)
        self.single_type_managers = tuple(
            get_manager_for_kv_cache_spec(group.kv_cache_spec, self.block_pool, group_id)
            for group_id, group in enumerate(self.kv_cache_groups)
        )

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: tuple[Sequence[KVCacheBlock], ...]
    ) -> int:
        """How many blocks must be free for the request to hold `num_tokens` tokens in all, in all groups together."""
        return sum(
            manager.get_num_blocks_to_allocate(request_id, num_tokens, blocks)
            for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True)
        )

    def save_new_computed_blocks(
        self, request_id: str, new_computed_blocks: tuple[Sequence[KVCacheBlock], ...]
    ) -> None:
        """Begin a request's block tables with the cached blocks it was found to share."""
        for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True):
            manager.save_new_computed_blocks(request_id, blocks)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> tuple[list[KVCacheBlock], ...]:
        """Give the request what it lacks to hold `num_tokens` tokens in all; returns only the new blocks."""
        return tuple(manager.allocate_new_blocks(request_id, num_tokens) for manager in self.single_type_managers)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Make the request's blocks findable that are full with its first `num_computed_tokens` tokens."""
        for manager in self.single_type_managers:
            manager.cache_blocks(request, num_computed_tokens)

    def forget_uncomputed(self, request_id: str, num_computed_tokens: int) -> None:
        """Make the request's blocks unfindable that are not full with its first `num_computed_tokens` tokens."""
        for manager in self.single_type_managers:
            manager.forget_uncomputed(request_id, num_computed_tokens)

    def get_next_change(self, request_id: str, num_tokens: int) -> int:
        """With which number of tokens, above `num_tokens`, the request's blocks change for the first time."""
        return min(manager.get_next_change(request_id, num_tokens) for manager in self.single_type_managers)

    def free(self, request_id: str) -> None:
        """Give all blocks of the request back."""
        for manager in self.single_type_managers:
            manager.free(request_id)

    def remove_skipped_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        """Give those blocks back that no token of the request to come will see."""
        for manager in self.single_type_managers:
            manager.remove_skipped_blocks(request_id, num_computed_tokens)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """For each group, how many first blocks all requests share."""
        return [manager.get_num_common_prefix_blocks(running_request_id) for manager in self.single_type_managers]

    def get_blocks(self, request_id: str) -> tuple[list[KVCacheBlock], ...]:
        """All blocks of the request, in the order of its tokens."""
        return tuple(manager.req_to_blocks.get(request_id) or [] for manager in self.single_type_managers)

    @abstractmethod
    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_cache_hit_length: int
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """The cached blocks that hold the beginning of a request, and how many tokens these are."""


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Without prefix caching: nothing is found, nothing is shared, and the groups may be of any kinds.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::KVCacheCoordinatorNoPrefixCache.
    """

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """0 for each group."""
        return [0 for _ in self.single_type_managers]

    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_cache_hit_length: int
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """Nothing."""
        return tuple([] for _ in self.single_type_managers), 0


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """For a model with one group: all its layers use the same kind of attention.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::UnitaryKVCacheCoordinator.
    """

    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_cache_hit_length: int
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """See `KVCacheCoordinator.find_longest_cache_hit`."""
        (manager,), (group,) = self.single_type_managers, self.kv_cache_groups
        hit_blocks = manager.find_longest_cache_hit(
            block_hashes, max_cache_hit_length, [0], self.block_pool, group.kv_cache_spec
        )
        return hit_blocks, len(hit_blocks[0]) * self.block_size


class HybridKVCacheCoordinator(KVCacheCoordinator):
    """For a model of two kinds of attention: full, and one other.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::HybridKVCacheCoordinator. `kv_cache_groups.py` sees to what is verified
    there: that there are two kinds, and that the groups of a kind follow each other.
    """

    def __init__(self, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(kv_cache_config)
        full = [isinstance(group.kv_cache_spec, FullAttentionSpec) for group in self.kv_cache_groups]
        self.full_attention_group_ids = [group_id for group_id, is_full in enumerate(full) if is_full]
        self.other_group_ids = [group_id for group_id, is_full in enumerate(full) if not is_full]
        self.full_attn_first = full[0]

    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_cache_hit_length: int
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """What full attention finds, cut to what the other kind finds within it."""
        spec = self.kv_cache_groups[self.full_attention_group_ids[0]].kv_cache_spec
        hit_full = FullAttentionManager.find_longest_cache_hit(
            block_hashes, max_cache_hit_length, self.full_attention_group_ids, self.block_pool, spec
        )
        other_id = self.other_group_ids[0]
        hit_other = self.single_type_managers[other_id].find_longest_cache_hit(
            block_hashes,
            len(hit_full[0]) * self.block_size,
            self.other_group_ids,
            self.block_pool,
            self.kv_cache_groups[other_id].kv_cache_spec,
        )
        for blocks in hit_full:
            del blocks[len(hit_other[0]) :]
        hit_blocks = hit_full + hit_other if self.full_attn_first else hit_other + hit_full
        return hit_blocks, len(hit_other[0]) * self.block_size


def get_kv_cache_coordinator(kv_cache_config: KVCacheConfig, enable_caching: bool) -> KVCacheCoordinator:
    """The coordinator for these groups."""
    if not enable_caching:
        return KVCacheCoordinatorNoPrefixCache(kv_cache_config)
    if len(kv_cache_config.kv_cache_groups) == 1:
        return UnitaryKVCacheCoordinator(kv_cache_config)
    return HybridKVCacheCoordinator(kv_cache_config)
