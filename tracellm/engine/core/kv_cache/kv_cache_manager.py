"""The one door between the scheduler and the KV cache.

Before a request runs, the scheduler asks which of its tokens are cached (`get_computed_blocks`); in every step it asks
for room for the next ones (`allocate_slots`); when the request ends or is preempted it gives all back (`free`).

vLLM: vllm/v1/core/kv_cache_manager.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

from tracellm.engine.core.kv_cache.kv_cache_block import KVCacheBlock
from tracellm.engine.core.kv_cache.kv_cache_coordinator import get_kv_cache_coordinator
from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
from tracellm.engine.core.request import Request
from tracellm.engine.metrics.stats import PrefixCacheStats

__all__ = ["KVCacheBlocks", "KVCacheManager"]


@dataclass(slots=True)
class KVCacheBlocks:
    """Blocks as the scheduler gets to see them.

    vLLM: vllm/v1/core/kv_cache_manager.py::KVCacheBlocks.
    """

    blocks: tuple[Sequence[KVCacheBlock], ...]
    """`blocks[i][j]` is the j-th block of the i-th KV cache group."""

    @overload
    def get_block_ids(self, allow_none: Literal[False] = False) -> tuple[list[int], ...]: ...

    @overload
    def get_block_ids(self, allow_none: Literal[True]) -> tuple[list[int], ...] | None: ...

    def get_block_ids(self, allow_none: bool = False) -> tuple[list[int], ...] | None:
        """The ids, one list a group; with `allow_none`, None instead of empty lists."""
        if allow_none and not any(self.blocks):
            return None
        return tuple([block.block_id for block in group] for group in self.blocks)


class KVCacheManager:
    """Finds cached prefixes, gives out slots for tokens, takes blocks back.

    vLLM: vllm/v1/core/kv_cache_manager.py::KVCacheManager. Left out: KV events, KV connectors, speculative (lookahead)
    slots, encoder tokens.
    """

    def __init__(self, kv_cache_config: KVCacheConfig, enable_caching: bool, log_stats: bool = False) -> None:
        self.enable_caching = enable_caching
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        """Since the last `make_prefix_cache_stats`; `None` when nobody keeps statistics."""
        self.coordinator = get_kv_cache_coordinator(kv_cache_config, enable_caching)
        self.num_kv_cache_groups = len(kv_cache_config.kv_cache_groups)
        self.block_pool = self.coordinator.block_pool
        # Most decode steps need no new block: they share this one object.
        self.empty_kv_cache_blocks = KVCacheBlocks(((),) * self.num_kv_cache_groups)
        self._next_change: dict[str, int] = {}
        """By request: with fewer tokens than so many its blocks stay as they are, and none of them becomes full."""

    @property
    def usage(self) -> float:
        """The share of the blocks in use, 0 to 1."""
        return self.block_pool.get_usage()

    def get_computed_blocks(self, request: Request) -> tuple[KVCacheBlocks, int]:
        """The cached blocks that hold the beginning of the request, and how many tokens these are.

        Its last token is never among them: computing it is what gives the logits. Since only whole blocks are shared, a
        request that is cached completely recomputes its last block.
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
        """Make room for the next tokens of a request.

        Args:
            request: whose `num_computed_tokens` tokens have their slots already.
            num_new_tokens: how many tokens the step will compute.
            num_new_computed_tokens: how many tokens were found cached, for a request that begins or resumes.
            new_computed_blocks: the blocks that hold these.

        Returns:
            The newly allocated blocks (possibly none, without the cached ones); None if too few blocks are free, and
            then nothing has changed, but that blocks which no token to come will see have been given back.

        Raises:
            ValueError: `num_new_tokens` is 0.
        """
        if num_new_tokens == 0:
            raise ValueError("num_new_tokens must be greater than 0")
        if request.num_computed_tokens + num_new_tokens < self._next_change.get(request.request_id, 0):
            return self.empty_kv_cache_blocks
        computed_blocks = (new_computed_blocks or self.empty_kv_cache_blocks).blocks
        # Even for a request that is then refused: the others have more room.
        self.coordinator.remove_skipped_blocks(request.request_id, request.num_computed_tokens)
        # | computed | found cached | new |   of these the last is to be computed in this step
        num_tokens = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens

        needed = self.coordinator.get_num_blocks_to_allocate(request.request_id, num_tokens, computed_blocks)
        if needed > self.block_pool.get_num_free_blocks():
            return None

        # First of all, so that the found blocks cannot be evicted by the new ones.
        for group in computed_blocks:
            self.block_pool.touch(group)
        if any(computed_blocks):
            self.coordinator.save_new_computed_blocks(request.request_id, computed_blocks)
        new_blocks = self.coordinator.allocate_new_blocks(request.request_id, num_tokens)
        if self.enable_caching:
            # The workers will have written these slots before any later step reads them, so they can be found from now
            # on. Whose last token is not known yet waits for `cache_blocks`.
            self.coordinator.cache_blocks(request, min(num_tokens, request.num_tokens))
        self._next_change[request.request_id] = self.coordinator.get_next_change(request.request_id, num_tokens)
        return self.create_kv_cache_blocks(new_blocks)

    def get_num_blocks_to_allocate(
        self, request: Request, num_new_tokens: int, new_computed_blocks: KVCacheBlocks | None = None
    ) -> int:
        """How many blocks would have to be free for `allocate_slots` to succeed.

        Args:
            request: the request, its cached tokens not yet counted in `num_computed_tokens`.
            num_new_tokens: how many tokens the step would compute.
            new_computed_blocks: the blocks that were found cached.
        """
        computed_blocks = (new_computed_blocks or self.empty_kv_cache_blocks).blocks
        num_cached_tokens = len(computed_blocks[0]) * self.coordinator.block_size
        num_tokens = request.num_computed_tokens + num_cached_tokens + num_new_tokens
        return self.coordinator.get_num_blocks_to_allocate(request.request_id, num_tokens, computed_blocks)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Make the blocks findable that are full with the request's first tokens; for asynchronous scheduling."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def forget_uncomputed(self, request: Request) -> None:
        """Nobody is to find the blocks that a step would have filled which is undone. vLLM 0.11.1 leaves them."""
        if self.enable_caching:
            self.coordinator.forget_uncomputed(request.request_id, request.num_computed_tokens)

    def free(self, request: Request) -> None:
        """Give all blocks of the request back; what is cached in them can still be found until they are used anew."""
        self._next_change.pop(request.request_id, None)
        self.coordinator.free(request.request_id)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content. Refuses (False) while a block is in use."""
        if not self.block_pool.reset_prefix_cache():
            return False
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        """What was looked for and found since the last call. A request that finds no room looks again in every step."""
        stats = self.prefix_cache_stats
        if stats is not None:
            self.prefix_cache_stats = PrefixCacheStats()
        return stats

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """For each group, how many blocks, from the first, all requests with blocks have in common."""
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """All blocks of the request, in the order of its tokens."""
        return self.create_kv_cache_blocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """The ids of all blocks of the request, one list a group."""
        return self.get_blocks(request_id).get_block_ids()

    def create_kv_cache_blocks(self, blocks: tuple[Sequence[KVCacheBlock], ...]) -> KVCacheBlocks:
        """Wrap blocks for the scheduler; all that are empty are one object."""
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks
