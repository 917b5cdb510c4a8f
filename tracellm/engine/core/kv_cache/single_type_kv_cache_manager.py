"""The blocks of each request in one KV cache group.

A manager counts the blocks that a request needs, allocates them from the pool, and frees them in eviction order. With
full attention a request keeps its blocks until it ends; with a sliding window it frees blocks behind the window.

vLLM: vllm/v1/core/single_type_kv_cache_manager.py.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from tracellm.engine.core.kv_cache.block_pool import BlockPool
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, SlidingWindowSpec
from tracellm.engine.core.kv_cache.kv_cache_utils import BlockHash, KVCacheBlock
from tracellm.engine.core.request import Request

__all__ = [
    "FullAttentionManager",
    "SingleTypeKVCacheManager",
    "SlidingWindowManager",
    "get_manager_for_kv_cache_spec",
]


class SingleTypeKVCacheManager(ABC):
    """The block tables of all requests, for one KV cache group.

    vLLM: vllm/v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager. Left out: context parallelism.
    """

    def __init__(self, kv_cache_spec: AttentionSpec, block_pool: BlockPool, kv_cache_group_id: int) -> None:
        self.kv_cache_spec = kv_cache_spec
        self.block_size = kv_cache_spec.block_size
        self.block_pool = block_pool
        self.kv_cache_group_id = kv_cache_group_id
        # request id -> its blocks, in token order. As in vLLM, a lookup creates an (empty) entry, so a request that got
        # no blocks counts in get_num_common_prefix_blocks.
        self.req_to_blocks: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
        # request id -> number of its leading blocks that are cached, or were until the window moved past them.
        self.num_cached_block: dict[str, int] = {}

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: Sequence[KVCacheBlock]
    ) -> int:
        """Return the number of free blocks that the request needs to hold `num_tokens` tokens.

        Cached blocks count only if they are free, because using them shortens the free queue too.
        """
        num_required_blocks = -(-num_tokens // self.block_size)
        num_new_blocks = num_required_blocks - len(new_computed_blocks) - len(self.req_to_blocks[request_id])
        if not new_computed_blocks:
            return num_new_blocks
        return num_new_blocks + sum(block.ref_cnt == 0 and not block.is_null for block in new_computed_blocks)

    def save_new_computed_blocks(self, request_id: str, new_computed_blocks: Sequence[KVCacheBlock]) -> None:
        """Start a request's block table with its cached prefix."""
        blocks = self.req_to_blocks[request_id]
        assert not blocks, f"request {request_id} has blocks already"
        blocks.extend(new_computed_blocks)
        self.num_cached_block[request_id] = len(new_computed_blocks)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        """Allocate the blocks that the request lacks to hold `num_tokens` tokens, and return them."""
        blocks = self.req_to_blocks[request_id]
        num_new_blocks = -(-num_tokens // self.block_size) - len(blocks)
        if num_new_blocks <= 0:
            return []
        new_blocks = self.block_pool.get_new_blocks(num_new_blocks)
        blocks.extend(new_blocks)
        return new_blocks

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Cache the blocks that the request's first `num_tokens` tokens fill."""
        num_cached_blocks = self.num_cached_block.get(request.request_id, 0)
        num_full_blocks = num_tokens // self.block_size
        if num_cached_blocks >= num_full_blocks:
            return
        self.block_pool.cache_full_blocks(
            self.req_to_blocks[request.request_id],
            request.block_hashes,
            num_cached_blocks,
            num_full_blocks,
            self.kv_cache_group_id,
        )
        self.num_cached_block[request.request_id] = num_full_blocks

    def evict_uncomputed_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        """Evict the request's cached blocks that its first `num_computed_tokens` tokens do not fill."""
        num_full_blocks = num_computed_tokens // self.block_size
        num_cached_blocks = self.num_cached_block.get(request_id, 0)
        self.block_pool.evict_blocks(self.req_to_blocks[request_id][num_full_blocks:num_cached_blocks])

    def get_next_change(self, request_id: str, num_tokens: int) -> int:
        """Return the smallest number of tokens, above `num_tokens`, that fills, needs or frees a block."""
        next_full = (num_tokens // self.block_size + 1) * self.block_size
        return min(next_full, len(self.req_to_blocks[request_id]) * self.block_size + 1)

    def free(self, request_id: str) -> None:
        """Free all blocks of the request, the last one first, because a prefix should be evicted last."""
        self.block_pool.free_blocks(reversed(self.req_to_blocks.pop(request_id, [])))
        self.num_cached_block.pop(request_id, None)

    def remove_skipped_blocks(self, request_id: str, num_computed_tokens: int) -> None:
        """Free the blocks that no token after the computed ones attends to, the last one first.

        The null block replaces them, which keeps the indices of the blocks after them.
        """
        num_skipped_blocks = self.kv_cache_spec.num_skipped_tokens(num_computed_tokens) // self.block_size
        if not num_skipped_blocks:
            return
        blocks = self.req_to_blocks[request_id]
        removed = []
        for index in reversed(range(num_skipped_blocks)):
            if blocks[index].is_null:
                break  # all blocks before it are null too
            removed.append(blocks[index])
            blocks[index] = self.block_pool.null_block
        self.block_pool.free_blocks(removed)

    @abstractmethod
    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Return the number of leading blocks that all requests with blocks share."""

    @classmethod
    @abstractmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Sequence[BlockHash],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: BlockPool,
        kv_cache_spec: AttentionSpec,
    ) -> tuple[list[KVCacheBlock], ...]:
        """Return the blocks of the longest prefix that is cached in all of these groups.

        Args:
            block_hashes: the hashes of the request's full blocks.
            max_length: the most tokens of the prefix.
            kv_cache_group_ids: the groups, all of this kind.
            block_pool: the pool to search.
            kv_cache_spec: the spec of these groups.

        Returns:
            The blocks of each group, equally many; null blocks where no later token attends.
        """


class FullAttentionManager(SingleTypeKVCacheManager):
    """Full attention: a token is kept until its request ends.

    vLLM: vllm/v1/core/single_type_kv_cache_manager.py::FullAttentionManager.
    """

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """See `SingleTypeKVCacheManager.get_num_common_prefix_blocks`."""
        num_requests = len(self.req_to_blocks)
        num_common_blocks = 0
        for block in self.req_to_blocks[running_request_id]:
            if block.ref_cnt != num_requests:
                break
            num_common_blocks += 1
        return num_common_blocks

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Sequence[BlockHash],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: BlockPool,
        kv_cache_spec: AttentionSpec,
    ) -> tuple[list[KVCacheBlock], ...]:
        """See `SingleTypeKVCacheManager.find_longest_cache_hit`."""
        computed_blocks: tuple[list[KVCacheBlock], ...] = tuple([] for _ in kv_cache_group_ids)
        for block_hash in islice(block_hashes, max_length // kv_cache_spec.block_size):
            # A hash covers all tokens before it, so no block after the first miss is cached.
            found = block_pool.get_cached_block(block_hash, kv_cache_group_ids)
            if found is None:
                break
            for computed, block in zip(computed_blocks, found, strict=True):
                computed.append(block)
        return computed_blocks


class SlidingWindowManager(SingleTypeKVCacheManager):
    """Sliding window: a token is kept while a later token attends to it.

    vLLM: vllm/v1/core/single_type_kv_cache_manager.py::SlidingWindowManager.
    """

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Return 0, because a window moves past the prefix first."""
        return 0

    def get_next_change(self, request_id: str, num_tokens: int) -> int:
        """Return the next number, because the window can move past a block with any token."""
        return num_tokens + 1

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Sequence[BlockHash],
        max_length: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: BlockPool,
        kv_cache_spec: AttentionSpec,
    ) -> tuple[list[KVCacheBlock], ...]:
        """See `SingleTypeKVCacheManager.find_longest_cache_hit`.

        Only the blocks in the next token's window must be cached; earlier ones may be evicted. The search goes from the
        right for the first run of that many cached blocks. If there is none, a shorter run at the very beginning is
        enough.
        """
        assert isinstance(kv_cache_spec, SlidingWindowSpec)
        wanted = -(-(kv_cache_spec.sliding_window - 1) // kv_cache_spec.block_size)
        length = max_length // kv_cache_spec.block_size
        computed_blocks = tuple([block_pool.null_block] * length for _ in kv_cache_group_ids)
        run = 0  # number of consecutive cached blocks, the leftmost at `index`
        for index in reversed(range(length)):
            found = block_pool.get_cached_block(block_hashes[index], kv_cache_group_ids)
            if found is None:
                run = 0
                continue
            run += 1
            for computed, block in zip(computed_blocks, found, strict=True):
                computed[index] = block
            if run >= wanted:
                break
        else:
            index = 0
        for computed in computed_blocks:
            del computed[index + run :]
        return computed_blocks


def get_manager_for_kv_cache_spec(
    kv_cache_spec: AttentionSpec, block_pool: BlockPool, kv_cache_group_id: int
) -> SingleTypeKVCacheManager:
    """Create the manager for layers of this kind."""
    if isinstance(kv_cache_spec, SlidingWindowSpec):
        return SlidingWindowManager(kv_cache_spec, block_pool, kv_cache_group_id)
    return FullAttentionManager(kv_cache_spec, block_pool, kv_cache_group_id)
