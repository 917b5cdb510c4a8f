"""Checks of lab 5: sequences of operations on a pool, whose state is compared after each.

A case is a number of blocks and a list of operations on behalf of requests: `allocate` new blocks, `cache` the blocks
that a request has, `share` the cached blocks of another request, `free` all blocks of a request.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

from tracellm.lab.checks import Check, Failure, first_difference

__all__ = ["CHECKS"]


class _Operations(Check):
    """Random operations; a subclass chooses how often each kind occurs."""

    weights: ClassVar[dict[str, int]]
    length = 12
    num_blocks = (6, 14)

    def make(self, random: Random) -> Any:
        """See `Check`. A pool of the reference shows which operations are possible."""
        pool = _Pool(random.randint(*self.num_blocks))
        num_blocks = pool.num_free + 1
        operations: list[dict[str, Any]] = []
        for _ in range(self.length):
            operation = self._choose(random, pool, len(operations))
            if operation is not None:
                operations.append(operation)
                pool.apply(operation)
        return {"num_blocks": num_blocks, "operations": operations}

    def _choose(self, random: Random, pool: "_Pool", number: int) -> dict[str, Any] | None:
        """Return the next operation; None if the chosen kind is impossible now."""
        (kind,) = random.choices(list(self.weights), list(self.weights.values()))
        new, owners, cached = str(number), sorted(pool.blocks), sorted(name for name, one in pool.hashes.items() if one)
        if kind == "too_many":
            return {"do": "allocate", "request": new, "count": pool.num_free + random.randint(1, 3)}
        if kind == "allocate" and pool.num_free:
            request = random.choice(owners) if owners and random.random() < 0.3 else new
            return {"do": "allocate", "request": request, "count": random.randint(1, min(4, pool.num_free))}
        if kind == "share" and cached:
            return {"do": "share", "request": new, "of": random.choice(cached)}
        if kind in ("cache", "free") and owners:
            return {"do": kind, "request": random.choice(owners)}
        return None

    def run(self, case: Any) -> Any:
        """Return the state after each operation."""
        pool = _Pool(case["num_blocks"])
        return [pool.state(None), *(pool.apply(operation) for operation in case["operations"])]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a broken invariant, else the first state that differs from the reference's."""
        for number, (state, right) in enumerate(zip(output, expected, strict=True)):
            if failure := _broken(state) or _differs(state, right):
                operation = case["operations"][number - 1] if number else None
                return _after(failure, number, operation)
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out the last operations, then single ones."""
        operations = case["operations"]
        for end in (len(operations) // 2, len(operations) - 1):
            if 0 < end < len(operations):
                yield case | {"operations": operations[:end]}
        for index in range(len(operations)):
            yield case | {"operations": operations[:index] + operations[index + 1 :]}


class _Pool:
    """A pool, and the requests that use it."""

    def __init__(self, num_blocks: int) -> None:
        from tracellm.engine.core.kv_cache.block_pool import BlockPool

        self._pool = BlockPool(num_blocks)
        self.blocks: dict[str, list[Any]] = {}
        self.hashes: dict[str, list[Any]] = {}
        self._num_cached: dict[str, int] = {}

    @property
    def num_free(self) -> int:
        """Number of free blocks."""
        return self._pool.get_num_free_blocks()

    def apply(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Execute an operation, and return the state after it."""
        request, error = operation["request"], None
        if operation["do"] == "allocate":
            try:
                new = self._pool.get_new_blocks(operation["count"])
            except ValueError:
                error = "ValueError"
            else:
                self.blocks.setdefault(request, []).extend(new)
        elif operation["do"] == "cache":
            self._cache(request)
        elif operation["do"] == "share":
            self._share(request, operation["of"])
        else:
            self._pool.free_blocks(reversed(self.blocks.pop(request, [])))
        return self.state(error)

    def _cache(self, request: str) -> None:
        blocks = self.blocks.get(request, [])
        done = self._num_cached.get(request, 0)
        hashes = self.hashes.setdefault(request, [])
        hashes += [f"{request}:{index}".encode() for index in range(len(hashes), len(blocks))]
        self._pool.cache_full_blocks(blocks, hashes, done, len(blocks), 0)
        self._num_cached[request] = len(blocks)

    def _share(self, request: str, source: str) -> None:
        found = []
        for block_hash in self.hashes.get(source, []):
            blocks = self._pool.get_cached_block(block_hash, [0])
            if blocks is None:
                break
            found.append(blocks[0])
        self._pool.touch(found)
        self.blocks[request] = found
        self.hashes[request] = list(self.hashes.get(source, []))[: len(found)]
        self._num_cached[request] = len(found)

    def state(self, error: str | None) -> dict[str, Any]:
        """Return the pool as plain data."""
        pool = self._pool
        limit = 2 * len(pool.blocks)  # a queue that is linked to itself has no end
        free = []
        for block in pool.free_block_queue.get_all_free_blocks():
            free.append(block.block_id)
            if len(free) > limit:
                break
        return {
            "error": error,
            "owners": {request: [block.block_id for block in blocks] for request, blocks in self.blocks.items()},
            "free": free,
            "num_free": pool.get_num_free_blocks(),
            "ref_cnt": [block.ref_cnt for block in pool.blocks],
            "cached": [block.block_id for block in pool.blocks if block.block_hash is not None],
            "found": sorted(
                found[0].block_id
                for hashes in self.hashes.values()
                for block_hash in set(hashes)
                if (found := pool.get_cached_block(block_hash, [0])) is not None
            ),
        }


def _broken(state: dict[str, Any]) -> Failure | None:
    """Return the first invariant that a state breaks."""
    free, owners = state["free"], state["owners"]
    count = Counter(block for blocks in owners.values() for block in blocks)
    if 0 in count:
        name = next(name for name, blocks in owners.items() if 0 in blocks)
        return Failure(f"request {name} was given block 0, the null block", f"请求 {name} 得到了块 0，即空块")
    if 0 in free:
        return Failure("block 0, the null block, is in the free queue", "块 0（空块）在空闲队列中")
    if twice := [block for block, times in Counter(free).items() if times > 1]:
        return Failure(f"block {twice[0]} is in the free queue twice", f"块 {twice[0]} 在空闲队列中出现了两次")
    for block in free:
        if block in count:
            names = [name for name, blocks in owners.items() if block in blocks]
            return Failure(
                f"block {block} is in the free queue, and request {' and '.join(names)} owns it",
                f"块 {block} 在空闲队列中，但它属于请求 {'、'.join(names)}",
            )
    for block, references in enumerate(state["ref_cnt"]):
        if block == 0:
            continue
        if references != count[block]:
            names = [name for name, blocks in owners.items() if block in blocks]
            return Failure(
                f"block {block} has a reference count of {references} and {len(names)} owners"
                + (f" (request {', '.join(names)})" if names else ""),
                f"块 {block} 的引用计数为 {references}，所有者有 {len(names)} 个"
                + (f"（请求 {'、'.join(names)}）" if names else ""),
            )
        if not count[block] and block not in free:
            return Failure(
                f"block {block} has no owner and is not in the free queue: it is lost",
                f"块 {block} 没有所有者，也不在空闲队列中：它丢失了",
            )
    if state["num_free"] != len(free):
        return Failure(
            f"num_free_blocks is {state['num_free']}, and the free queue has {len(free)} blocks",
            f"num_free_blocks 为 {state['num_free']}，而空闲队列中有 {len(free)} 个块",
        )
    return None


def _differs(state: dict[str, Any], right: dict[str, Any]) -> Failure | None:
    if state["error"] != right["error"]:
        if right["error"]:
            return Failure("get_new_blocks raised no ValueError", "get_new_blocks 没有引发 ValueError")
        return Failure("get_new_blocks raised ValueError", "get_new_blocks 引发了 ValueError")
    for name, blocks in right["owners"].items():
        if state["owners"].get(name) != blocks:
            return Failure(
                f"request {name} has blocks {state['owners'].get(name)}; the front of the queue gives it {blocks}",
                f"请求 {name} 的块为 {state['owners'].get(name)}；从队首分配应为 {blocks}",
            )
    if state["free"] != right["free"]:
        return Failure(
            f"the free queue is {state['free']}; it should be {right['free']}",
            f"空闲队列为 {state['free']}，应为 {right['free']}",
        )
    for key in ("cached", "found"):
        if wrong := sorted(set(state[key]) ^ set(right[key])):
            block, inside = wrong[0], wrong[0] in state[key]
            return Failure(
                f"block {block} is {'still' if inside else 'no longer'} in the prefix cache",
                f"块 {block} {'仍' if inside else '不再'}在前缀缓存中",
            )
    return first_difference(state, right)


def _after(failure: Failure, number: int, operation: dict[str, Any] | None) -> Failure:
    if operation is None:
        return Failure(f"in a new pool, {failure.en}", f"在新的块池中，{failure.zh}")
    request = operation["request"]
    en, zh = {
        "allocate": (
            f"allocate {operation.get('count')} for request {request}",
            f"为请求 {request} 分配 {operation.get('count')} 个块",
        ),
        "cache": (f"cache the blocks of request {request}", f"缓存请求 {request} 的块"),
        "share": (
            f"request {request} shares the blocks of {operation.get('of')}",
            f"请求 {request} 共享请求 {operation.get('of')} 的块",
        ),
        "free": (f"free request {request}", f"释放请求 {request}"),
    }[operation["do"]]
    return Failure(f"after operation {number} ({en}), {failure.en}", f"第 {number} 个操作（{zh}）之后，{failure.zh}")


class AllocatesFromTheFront(_Operations):
    """New blocks come from the front of the free queue, with a reference count of 1."""

    zh = "新块取自空闲队列的队首，引用计数为 1。"
    weights: ClassVar = {"allocate": 1}
    length = 3


class FreedBlocksGoToTheBack(_Operations):
    """Freed blocks go to the back of the queue, in the given order, once no request uses them."""

    zh = "块在没有请求使用后，按给定顺序回到队尾。"
    weights: ClassVar = {"allocate": 3, "free": 2}


class SharedBlocksLeaveTheQueue(_Operations):
    """A cached block that is touched leaves the free queue, and has one reference more."""

    zh = "被 touch 的缓存块离开空闲队列，引用计数加一。"
    weights: ClassVar = {"allocate": 3, "cache": 3, "share": 3, "free": 3}
    length = 14


class ReusedBlocksAreEvicted(_Operations):
    """A cached block stays in the prefix cache when it is freed, and leaves it when it is allocated again."""

    zh = "缓存块被释放后仍在前缀缓存中，再次分配时才离开。"
    weights: ClassVar = {"allocate": 4, "cache": 3, "free": 3}
    num_blocks = (4, 7)
    length = 16


class TooManyBlocksAreRefused(_Operations):
    """More blocks than are free raise ValueError, and nothing changes."""

    zh = "请求的块多于空闲块时引发 ValueError，且状态不变。"
    weights: ClassVar = {"allocate": 2, "too_many": 2, "free": 1}


class AnyOperationsKeepTheInvariant(_Operations):
    """After any operation, each block is free or owned, and its reference count is the number of its owners."""

    zh = "任何操作之后，每个块要么空闲，要么有所有者，引用计数等于所有者的数量。"
    weights: ClassVar = {"allocate": 5, "cache": 4, "share": 4, "free": 4, "too_many": 1}
    length = 60
    cases = 10


class RemovesFromTheMiddleInConstantTime(Check):
    """Removing a block from the middle of the queue takes as many steps in a long queue as in a short one."""

    zh = "从队列中部移除一个块所需的步数与队列长度无关。"
    cases = 3
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        return {"short": random.randint(8, 16), "long": random.randint(1500, 2500)}

    def run(self, case: Any) -> Any:
        """Return the number of executed lines of `remove` for each length."""
        return {name: _lines_of_remove(case[name]) for name in ("short", "long")}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Allow the same number of lines, and some."""
        if output["long"] <= output["short"] + 10:
            return None
        return Failure(
            f"remove executes {output['short']} lines in a queue of {case['short']} blocks, and {output['long']} lines "
            f"in a queue of {case['long']}: it walks through the queue",
            f"remove 在 {case['short']} 个块的队列中执行 {output['short']} 行，在 {case['long']} 个块的队列中执行 "
            f"{output['long']} 行：它在遍历队列",
        )


def _lines_of_remove(num_blocks: int) -> int:
    from tracellm.engine.core.kv_cache.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

    blocks = [KVCacheBlock(index) for index in range(num_blocks)]
    queue = FreeKVCacheBlockQueue(blocks)
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        queue.remove(blocks[num_blocks // 2])
    finally:
        sys.settrace(None)
    return count


CHECKS: tuple[Check, ...] = (
    AllocatesFromTheFront(),
    FreedBlocksGoToTheBack(),
    SharedBlocksLeaveTheQueue(),
    ReusedBlocksAreEvicted(),
    TooManyBlocksAreRefused(),
    RemovesFromTheMiddleInConstantTime(),
    AnyOperationsKeepTheInvariant(),
)
