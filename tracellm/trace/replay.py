"""The KV cache block by block, replayed from a run's recorded steps.

A recorded step lists the blocks that each request got. What follows from that is found here: each request's block
table, the blocks that hold a full hashed piece of a prompt or an output, those that are evicted, and those released.

vLLM: vllm/v1/core/block_pool.py, vllm/v1/core/kv_cache_manager.py.
"""

from collections.abc import Iterable

import msgspec

from tracellm.trace.steps import Step

__all__ = ["BlockChanges", "BlockReplay", "CachedBlock"]


class CachedBlock(msgspec.Struct, frozen=True, gc=False):
    """A block that the prefix cache can find: the `index`-th block of a request's tokens, from 0."""

    block: int
    request_id: str
    index: int


class BlockChanges(msgspec.Struct, frozen=True, gc=False):
    """Changes of the KV cache in one step, in this order.

    `released` requests lost their blocks. `evicted` blocks were cached, free, and got new owners. `cached` blocks
    became full, so the prefix cache can find them. `consistent` is whether the replay agrees with the recorded
    number of free blocks.
    """

    released: tuple[str, ...]
    evicted: tuple[int, ...]
    cached: tuple[CachedBlock, ...]
    consistent: bool


class BlockReplay:
    """Block tables and cached blocks of one engine; `apply` moves them to the next step.

    `tables` and `cached` are those after the step's scheduling. A request that finishes in the step still has its
    blocks then, as in the scheduler, and releases them before the next step.

    Args:
        block_size: tokens that a block holds.
        prefix_caching: whether full blocks are cached.
    """

    def __init__(self, block_size: int, *, prefix_caching: bool) -> None:
        self.tables: dict[str, list[int]] = {}
        self.cached: dict[int, CachedBlock] = {}
        self._block_size = block_size
        self._prefix_caching = prefix_caching and block_size > 0
        self._num_cached: dict[str, int] = {}
        self._ended: tuple[str, ...] = ()

    def apply(self, step: Step) -> BlockChanges:
        """Advance to the state after this step's scheduling, and return the changes."""
        released = self._release((*self._ended, *step.aborted, *step.preempted))
        self._ended = tuple(step.finished)
        evicted: list[int] = []
        cached: list[CachedBlock] = []
        for request in step.requests:
            table = self.tables.setdefault(request.request_id, [])
            if request.request_id in step.new or request.request_id in step.resumed:
                table.clear()
                self._num_cached[request.request_id] = len(request.cached_blocks)
            table += request.cached_blocks
            table += request.new_blocks
            evicted += [block for block in request.new_blocks if self.cached.pop(block, None) is not None]
            cached += self._cache(request.request_id, request.num_computed + request.num_tokens)
        used = {block for table in self.tables.values() for block in table}
        return BlockChanges(
            released, tuple(evicted), tuple(cached), consistent=step.blocks_total - len(used) == step.blocks_free
        )

    def _release(self, request_ids: Iterable[str]) -> tuple[str, ...]:
        """Release the blocks of these requests, and return the requests that had any."""
        had_blocks = tuple(request_id for request_id in dict.fromkeys(request_ids) if request_id in self.tables)
        for request_id in had_blocks:
            del self.tables[request_id]
            self._num_cached.pop(request_id, None)
        return had_blocks

    def _cache(self, request_id: str, num_tokens: int) -> list[CachedBlock]:
        """Cache the request's blocks that its first `num_tokens` tokens fill."""
        if not self._prefix_caching:
            return []
        table = self.tables[request_id]
        first, last = self._num_cached.get(request_id, 0), min(num_tokens // self._block_size, len(table))
        found = [CachedBlock(table[index], request_id, index) for index in range(first, last)]
        self.cached.update((block.block, block) for block in found)
        self._num_cached[request_id] = max(first, last)
        return found
