"""The block tables of all KV cache groups, over one pool of blocks.

`KVCacheManager` passes blocks as a tuple with one entry per group. Most models have one group; models that mix full
attention and sliding windows (Gemma 2 and 3) have several.

vLLM: vllm/v1/core/kv_cache_coordinator.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tracellm.engine.core.kv_cache.block_pool import BlockPool
from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig
from tracellm.engine.core.kv_cache.kv_cache_utils import BlockHash, KVCacheBlock
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
    """Base class that applies an operation to each group; subclasses find the cached prefix common to all groups.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::KVCacheCoordinator.
    """

    def __init__(self, kv_cache_config: KVCacheConfig) -> None:
        self.kv_cache_groups = kv_cache_config.kv_cache_groups
        # All groups have the same block size.
        self.block_size = self.kv_cache_groups[0].kv_cache_spec.block_size
        self.block_pool = BlockPool(kv_cache_config.num_blocks)
        self.single_type_managers = tuple(
            get_manager_for_kv_cache_spec(group.kv_cache_spec, self.block_pool, group_id)
            for group_id, group in enumerate(self.kv_cache_groups)
        )

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: tuple[Sequence[KVCacheBlock], ...]
    ) -> int:
        """Return the number of free blocks that the request needs to hold `num_tokens` tokens, over all groups."""
        return sum(
            manager.get_num_blocks_to_allocate(request_id, num_tokens, blocks)
            for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True)
        )

    def save_new_computed_blocks(
        self, request_id: str, new_computed_blocks: tuple[Sequence[KVCacheBlock], ...]
    ) -> None:
        """Start a request's block tables with its cached prefix."""
        for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True):
            manager.save_new_computed_blocks(request_id, blocks)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> tuple[list[KVCacheBlock], ...]:
        """Allocate the blocks that the request lacks to hold `num_tokens` tokens, and return them."""
        return tuple(manager.allocate_new_blocks(request_id, num_tokens) for manager in self.single_type_managers)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Cache the blocks that the request's first `num_computed_tokens` tokens fill."""
        for manager in self.single_type_managers:
            manager.cache_blocks(request, num_computed_tokens)

    def evict_uncomputed_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        """Evict the request's cached blocks that its first `num_computed_tokens` tokens do not fill."""
        for manager in self.single_type_managers:
            manager.evict_uncomputed_blocks(request_id, num_computed_tokens)

    def get_next_change(self, request_id: str, num_tokens: int) -> int:
        """Return the smallest number of tokens, above `num_tokens`, at which the request's blocks change."""
        return min(manager.get_next_change(request_id, num_tokens) for manager in self.single_type_managers)

    def free(self, request_id: str) -> None:
        """Free all blocks of the request."""
        for manager in self.single_type_managers:
            manager.free(request_id)

    def remove_skipped_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        """Free the blocks that no later token of the request attends to."""
        for manager in self.single_type_managers:
            manager.remove_skipped_blocks(request_id, num_computed_tokens)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Return the number of leading blocks that all requests share, per group."""
        return [manager.get_num_common_prefix_blocks(running_request_id) for manager in self.single_type_managers]

    def get_blocks(self, request_id: str) -> tuple[list[KVCacheBlock], ...]:
        """Return all blocks of the request, in token order."""
        return tuple(manager.req_to_blocks.get(request_id) or [] for manager in self.single_type_managers)

    @abstractmethod
    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_cache_hit_length: int
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """Return the cached blocks of the request's longest cached prefix, and the number of their tokens."""


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Coordinator without prefix caching; the groups may be of any kinds.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::KVCacheCoordinatorNoPrefixCache.
    """

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Return 0 for each group."""
        return [0 for _ in self.single_type_managers]

    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_cache_hit_length: int
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """Return no blocks."""
        return tuple([] for _ in self.single_type_managers), 0


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """Coordinator of a model with one group: all layers use the same kind of attention.

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
    """Coordinator of a model with full attention and one other kind.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::HybridKVCacheCoordinator. It verifies that there are two kinds, with
    consecutive groups; here `get_kv_cache_groups` ensures both.
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
        """Find the prefix of the full attention groups, and shorten it to the prefix of the other groups."""
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
    """Create the coordinator for these groups."""
    if not enable_caching:
        return KVCacheCoordinatorNoPrefixCache(kv_cache_config)
    if len(kv_cache_config.kv_cache_groups) == 1:
        return UnitaryKVCacheCoordinator(kv_cache_config)
    return HybridKVCacheCoordinator(kv_cache_config)
