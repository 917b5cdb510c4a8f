"""Checks that the twist adds to those of lab 5."""

from random import Random
from typing import Any

from tracellm.lab.checks import Check

__all__ = ["CHECKS"]


class PrependsInTheGivenOrder(Check):
    """`prepend_n` puts blocks in front of all others, in the given order."""

    zh = "`prepend_n` 按给定顺序把块放到所有其他块之前。"

    def make(self, random: Random) -> Any:
        """See `Check`."""
        size = random.randint(2, 9)
        return {"size": size, "taken": random.sample(range(size), random.randint(0, size))}

    def run(self, case: Any) -> Any:
        """Return the order of the queue, forwards and backwards, and its length."""
        from tracellm.engine.core.kv_cache.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

        blocks = [KVCacheBlock(index) for index in range(case["size"])]
        queue = FreeKVCacheBlockQueue(blocks)
        for index in case["taken"]:
            queue.remove(blocks[index])
        queue.prepend_n(blocks[index] for index in case["taken"])  # type: ignore[attr-defined]
        forwards = [block.block_id for block in queue.get_all_free_blocks()]
        backwards, place = [], queue._tail.prev_free_block
        while place is not queue._head and place is not None:
            backwards.append(place.block_id)
            place = place.prev_free_block
        return {"queue": forwards, "backwards": backwards, "num_free_blocks": queue.num_free_blocks}


CHECKS: tuple[Check, ...] = (PrependsInTheGivenOrder(),)
