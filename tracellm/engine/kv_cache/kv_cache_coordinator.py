"""Between the KV cache manager and the block tables: one table per group of layers, and here there is one group.

vLLM: vllm/v1/core/kv_cache_coordinator.py.
"""

from collections.abc import Sequence

from tracellm.engine.kv_cache.block_pool import BlockPool
from tracellm.engine.kv_cache.kv_cache_block import BlockHash, KVCacheBlock
from tracellm.engine.kv_cache.kv_cache_interface import KVCacheConfig
from tracellm.engine.kv_cache.single_type_kv_cache_manager import FullAttentionManager
from tracellm.engine.request import Request

__all__ = ["UnitaryKVCacheCoordinator"]


class UnitaryKVCacheCoordinator:
    """The coordinator of a model whose layers all use the same kind of attention.

    Blocks go in and out as a tuple with one entry per group, as in vLLM; the tuple has one entry here.

    vLLM: vllm/v1/core/kv_cache_coordinator.py::UnitaryKVCacheCoordinator (with its base KVCacheCoordinator). Left out:
    hybrid models, and the sibling KVCacheCoordinatorNoPrefixCache: without caching this one does the same.
    """

    def __init__(self, kv_cache_config: KVCacheConfig, enable_caching: bool) -> None:
        (group,) = kv_cache_config.kv_cache_groups
        self.enable_caching = enable_caching
        self.block_size = group.kv_cache_spec.block_size
        self.block_pool = BlockPool(kv_cache_config.num_blocks)
        self.single_type_managers = (FullAttentionManager(group.kv_cache_spec, self.block_pool),)

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: tuple[Sequence[KVCacheBlock], ...]
    ) -> int:
        """How many blocks must be free for the request to hold `num_tokens` tokens in all."""
        return self.single_type_managers[0].get_num_blocks_to_allocate(request_id, num_tokens, new_computed_blocks[0])

    def save_new_computed_blocks(
        self, request_id: str, new_computed_blocks: tuple[Sequence[KVCacheBlock], ...]
    ) -> None:
        """Begin a request's block table with the cached blocks it was found to share."""
        self.single_type_managers[0].save_new_computed_blocks(request_id, new_computed_blocks[0])

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> tuple[list[KVCacheBlock], ...]:
        """Give the request what it lacks to hold `num_tokens` tokens in all; returns only the new blocks."""
        return (self.single_type_managers[0].allocate_new_blocks(request_id, num_tokens),)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Make the request's blocks findable that are full with its first `num_computed_tokens` tokens."""
        self.single_type_managers[0].cache_blocks(request, num_computed_tokens)

    def free(self, request_id: str) -> None:
        """Give all blocks of the request back."""
        self.single_type_managers[0].free(request_id)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """For each group, how many first blocks all requests share; nothing is ever shared without caching."""
        if not self.enable_caching:
            return [0]
        return [self.single_type_managers[0].get_num_common_prefix_blocks(running_request_id)]

    def get_blocks(self, request_id: str) -> tuple[list[KVCacheBlock], ...]:
        """All blocks of the request, in the order of its tokens."""
        return (self.single_type_managers[0].req_to_blocks.get(request_id) or [],)

    def find_longest_cache_hit(
        self, block_hashes: Sequence[BlockHash], max_cache_hit_length: int
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """The cached blocks that hold the beginning of a request, and how many tokens these are."""
        hit_blocks = self.single_type_managers[0].find_longest_cache_hit(block_hashes, max_cache_hit_length)
        return (hit_blocks,), len(hit_blocks) * self.block_size
