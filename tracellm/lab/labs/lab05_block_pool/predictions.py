"""Predictions of lab 5: the next free block, the number of references, the block that is evicted."""

from random import Random
from typing import Any

from tracellm.lab.predictions import Prediction

__all__ = ["PREDICTIONS"]


def _owned(case: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return a new pool, and the blocks that requests 1 and 2 allocate in it."""
    from tracellm.engine.core.kv_cache.block_pool import BlockPool

    pool = BlockPool(case["num_blocks"])
    return pool, pool.get_new_blocks(case["first"]), pool.get_new_blocks(case["second"])


class NextBlock(Prediction):
    """The block that is allocated after a request has freed its blocks."""

    name = "next-block"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        first, second = random.randint(2, 4), random.randint(2, 4)
        return {"num_blocks": first + second + 2, "first": first, "second": second}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        last = case["num_blocks"] - 1
        if lang == "zh":
            return (
                f"块池有块 1 到 {last}。请求 1 分配 {case['first']} 个块，请求 2 分配 {case['second']} 个块，"
                "然后请求 1 结束，其块从最后一个开始释放。接着请求 3 分配 2 个块。其中第二个块的编号是？"
            )
        return (
            f"A pool has blocks 1 to {last}. Request 1 allocates {case['first']} blocks, request 2 allocates "
            f"{case['second']}. Then request 1 ends: its blocks are freed, the last one first. Now request 3 allocates "
            "2 blocks. Which number has its second block?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        pool, first, _ = _owned(case)
        pool.free_blocks(reversed(first))
        return int(pool.get_new_blocks(2)[1].block_id)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        last = case["num_blocks"] - 1
        if lang == "zh":
            return (
                f"请求 1 结束前只有块 {last} 空闲，它在队首。释放的块从请求 1 的最后一个块 {case['first']} 开始排到"
                f"队尾，所以请求 3 得到块 {last} 和块 {case['first']}。"
            )
        return (
            f"Before request 1 ends, only block {last} is free: it is at the front of the queue. The freed blocks "
            f"follow, beginning with the last one of request 1, block {case['first']}. So request 3 gets {last} and "
            f"{case['first']}."
        )


class References(Prediction):
    """The reference count of a block that several requests share."""

    name = "references"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        sharing = random.randint(2, 5)
        return {"num_blocks": 8, "first": 2, "second": 1, "sharing": sharing, "ended": random.randint(1, sharing)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return (
                f"请求 1 的块 1 在前缀缓存中，另有 {case['sharing']} 个请求共享它。随后这些请求中有 {case['ended']} 个"
                "和请求 1 结束。块 1 的引用计数是？"
            )
        return (
            f"Block 1 of request 1 is in the prefix cache, and {case['sharing']} other requests share it. Then request "
            f"1 and {case['ended']} of the others end. What is the reference count of block 1?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        pool, first, _ = _owned(case)
        for _ in range(case["sharing"]):
            pool.touch(first[:1])
        for _ in range(case["ended"] + 1):
            pool.free_blocks(first[:1])
        return int(first[0].ref_cnt)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        if lang == "zh":
            return f"1 + {case['sharing']} 个引用减去 1 + {case['ended']} 个：引用计数等于所有者的数量。"
        return f"1 + {case['sharing']} references, less 1 + {case['ended']}: the count is the number of owners."


class CachedBlocks(Prediction):
    """The number of cached blocks that an allocation evicts."""

    name = "evicted"

    def make(self, random: Random) -> Any:
        """See `Prediction`."""
        first, second = random.randint(3, 5), random.randint(1, 3)
        unused = random.randint(1, 3)
        wanted = unused + random.randint(1, first)
        return {"num_blocks": first + second + unused + 1, "first": first, "second": second, "wanted": wanted}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        last = case["num_blocks"] - 1
        if lang == "zh":
            return (
                f"块池有块 1 到 {last}。请求 1 有 {case['first']} 个块，都在前缀缓存中；"
                f"请求 2 有 {case['second']} 个块。请求 1 结束后，请求 3 分配 {case['wanted']} 个块。"
                "有多少个缓存块被驱逐？"
            )
        return (
            f"A pool has blocks 1 to {last}. Request 1 has {case['first']} blocks, all in the prefix cache; request 2 "
            f"has {case['second']}. Request 1 ends, and request 3 allocates {case['wanted']} blocks. How many cached "
            "blocks are evicted?"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`."""
        pool, first, _ = _owned(case)
        hashes: list[Any] = [f"block {index}".encode() for index in range(len(first))]
        pool.cache_full_blocks(first, hashes, 0, len(first), 0)
        pool.free_blocks(reversed(first))
        pool.get_new_blocks(case["wanted"])
        return sum(block.block_hash is None for block in first)

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        unused = case["num_blocks"] - 1 - case["first"] - case["second"]
        if lang == "zh":
            return f"队首是 {unused} 个从未用过的块，之后才是请求 1 的块：{case['wanted']} - {unused} 个缓存块被驱逐。"
        return (
            f"At the front of the queue are {unused} blocks that were never used, and behind them those of request 1: "
            f"{case['wanted']} - {unused} cached blocks are evicted."
        )


PREDICTIONS: tuple[Prediction, ...] = (NextBlock(), References(), CachedBlocks())
