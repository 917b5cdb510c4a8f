"""The scheduler's interface to the KV cache.

Before a request starts, the scheduler looks up its cached prefix (`get_computed_blocks`). In every step it allocates
slots for the next tokens (`allocate_slots`). When the request ends or is preempted, it frees the blocks (`free`).

vLLM: vllm/v1/core/kv_cache_manager.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

from tracellm.engine.core.kv_cache.kv_cache_coordinator import get_kv_cache_coordinator
from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
from tracellm.engine.core.kv_cache.kv_cache_utils import KVCacheBlock
from tracellm.engine.core.request import Request
from tracellm.engine.metrics.stats import PrefixCacheStats

__all__ = ["KVCacheBlocks", "KVCacheManager"]


@dataclass(slots=True)
class KVCacheBlocks:
    """Blocks of a request, as the scheduler handles them.

    vLLM: vllm/v1/core/kv_cache_manager.py::KVCacheBlocks.
    """

    blocks: tuple[Sequence[KVCacheBlock], ...]
    """`blocks[i][j]` is the j-th block of the i-th KV cache group."""

    @overload
    def get_block_ids(self, allow_none: Literal[False] = False) -> tuple[list[int], ...]: ...

    @overload
    def get_block_ids(self, allow_none: Literal[True]) -> tuple[list[int], ...] | None: ...

    def get_block_ids(self, allow_none: bool = False) -> tuple[list[int], ...] | None:
        """Return the block ids, one list per group; with `allow_none`, None instead of empty lists."""
        if allow_none and not any(self.blocks):
            return None
        return tuple([block.block_id for block in group] for group in self.blocks)


class KVCacheManager:
    """Finds cached prefixes, allocates slots for tokens, and frees blocks.

    vLLM: vllm/v1/core/kv_cache_manager.py::KVCacheManager. Left out: KV events, KV connectors, speculative (lookahead)
    slots, encoder tokens.
    """

    def __init__(self, kv_cache_config: KVCacheConfig, enable_caching: bool, log_stats: bool = False) -> None:
        self.enable_caching = enable_caching
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        """Statistics since the last `make_prefix_cache_stats`, or None if not collected."""
        self.coordinator = get_kv_cache_coordinator(kv_cache_config, enable_caching)
        self.num_kv_cache_groups = len(kv_cache_config.kv_cache_groups)
        self.block_pool = self.coordinator.block_pool
        # Shared by the many decode steps that need no new block.
        self.empty_kv_cache_blocks = KVCacheBlocks(((),) * self.num_kv_cache_groups)
        self._next_change: dict[str, int] = {}
        """The smallest number of tokens, by request id, that needs, fills or frees a block."""

    @property
    def usage(self) -> float:
        """Used fraction of the blocks, 0 to 1."""
        return self.block_pool.get_usage()

    def get_computed_blocks(self, request: Request) -> tuple[KVCacheBlocks, int]:
        """Return the blocks of the request's cached prefix, and the number of their tokens.

        The last token is never included, because its logits must be computed. Only whole blocks are shared, so a fully
        cached request recomputes its last block.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0
        computed_blocks, num_computed_tokens = self.coordinator.find_longest_cache_hit(
            request.block_hashes, request.num_tokens - 1
        )
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.record(request.num_tokens, num_computed_tokens, request.num_preemptions > 0)
        return self.create_kv_cache_blocks(computed_blocks), num_computed_tokens

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
    ) -> KVCacheBlocks | None:
        """Allocate slots for the next tokens of a request.

        Args:
            request: the request; its first `num_computed_tokens` tokens have slots.
            num_new_tokens: number of tokens that the step will compute.
            num_new_computed_tokens: number of cached tokens, for a request that starts or resumes.
            new_computed_blocks: the blocks of the cached tokens.

        Returns:
            The newly allocated blocks, without the cached ones; possibly none. None if too few blocks are free: then
            only the blocks that no later token attends to have been freed.

        Raises:
            ValueError: `num_new_tokens` is 0.
        """
        if num_new_tokens == 0:
            raise ValueError("num_new_tokens must be greater than 0")
        if request.num_computed_tokens + num_new_tokens < self._next_change.get(request.request_id, 0):
            return self.empty_kv_cache_blocks
        computed_blocks = (new_computed_blocks or self.empty_kv_cache_blocks).blocks
        # Even if the allocation fails below: other requests can use these blocks.
        self.coordinator.remove_skipped_blocks(request.request_id, request.num_computed_tokens)
        # | computed | cached | new |   the step computes the last part
        num_tokens = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens

        needed = self.coordinator.get_num_blocks_to_allocate(request.request_id, num_tokens, computed_blocks)
        if needed > self.block_pool.get_num_free_blocks():
            return None

        # Before anything is allocated, which could evict the cached blocks.
        for group in computed_blocks:
            self.block_pool.touch(group)
        if any(computed_blocks):
            self.coordinator.save_new_computed_blocks(request.request_id, computed_blocks)
        new_blocks = self.coordinator.allocate_new_blocks(request.request_id, num_tokens)
        if self.enable_caching:
            # The workers write these slots before any later step reads them, so they can be cached now. A block whose
            # last token is not known yet is cached by `cache_blocks`.
            self.coordinator.cache_blocks(request, min(num_tokens, request.num_tokens))
        self._next_change[request.request_id] = self.coordinator.get_next_change(request.request_id, num_tokens)
        return self.create_kv_cache_blocks(new_blocks)

    def get_num_blocks_to_allocate(
        self, request: Request, num_new_tokens: int, new_computed_blocks: KVCacheBlocks | None = None
    ) -> int:
        """Return the number of free blocks that `allocate_slots` needs.

        Args:
            request: the request; `num_computed_tokens` does not include its cached tokens.
            num_new_tokens: number of tokens that the step would compute.
            new_computed_blocks: the blocks of its cached prefix.
        """
        computed_blocks = (new_computed_blocks or self.empty_kv_cache_blocks).blocks
        num_cached_tokens = len(computed_blocks[0]) * self.coordinator.block_size
        num_tokens = request.num_computed_tokens + num_cached_tokens + num_new_tokens
        return self.coordinator.get_num_blocks_to_allocate(request.request_id, num_tokens, computed_blocks)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Cache the blocks that the request's first tokens fill; for asynchronous scheduling."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def evict_uncomputed_blocks(self, request: Request) -> None:
        """Evict the blocks that the request would have filled in a step that is undone. vLLM 0.11.1 leaves them."""
        if self.enable_caching:
            self.coordinator.evict_uncomputed_blocks(request.request_id, request.num_computed_tokens)

    def free(self, request: Request) -> None:
        """Free all blocks of the request. Their content stays cached until they are allocated again."""
        self._next_change.pop(request.request_id, None)
        self.coordinator.free(request.request_id)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. Return False, and change nothing, while a block is in use."""
        if not self.block_pool.reset_prefix_cache():
            return False
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        """Return the lookups and hits since the last call. A request that waits for blocks counts in every step."""
        stats = self.prefix_cache_stats
        if stats is not None:
            self.prefix_cache_stats = PrefixCacheStats()
        return stats

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Return the number of leading blocks that all requests with blocks share, per group."""
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """Return all blocks of the request, in token order."""
        return self.create_kv_cache_blocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """Return the ids of all blocks of the request, one list per group."""
        return self.get_blocks(request_id).get_block_ids()

    def create_kv_cache_blocks(self, blocks: tuple[Sequence[KVCacheBlock], ...]) -> KVCacheBlocks:
        """Wrap blocks for the scheduler; without blocks, return the shared empty object."""
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks
