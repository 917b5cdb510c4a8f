"""Checks of lab 5: sequences of operations on a pool, whose state is compared after each.

A case is a number of blocks and a list of operations on behalf of requests: `allocate` new blocks, `cache` the blocks
that a request has, `share` the cached blocks of another request, `drop` the first block of a request behind a sliding
window, where the null block takes its place, and `free` all blocks of a request.
"""

import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tracellm.lab.checks import Check, Failure, first_difference

__all__ = ["CHECKS"]

_FIELDS = {"allocate": {"count"}, "cache": set(), "share": {"of"}, "drop": set(), "free": set()}
"""Further fields of each operation, beside `do` and `request`."""


class _Operations(Check):
    """Random operations; a subclass chooses how often each kind occurs.

    The kinds are the operations, and `too_many`, an allocation that must be refused, and `revive`, which shares the
    blocks of a request that was freed, at least one of them out of the free queue.
    """

    weights: ClassVar[dict[str, int]]
    needs: ClassVar[tuple[str, ...]] = ()
    """Each case has all of these; by default all kinds. See `_events`."""
    length = 12
    num_blocks = (6, 14)

    def make(self, random: Random) -> Any:
        """See `Check`. A pool of the reference shows which operations are possible."""
        while True:
            pool = _Pool(random.randint(*self.num_blocks))
            case: dict[str, Any] = {"num_blocks": pool.num_free + 1, "operations": []}
            events: set[str] = set()
            for number in range(self.length):
                possible = self._possible(random, pool, str(number))
                if not possible:
                    break
                (kind,) = random.choices(list(possible), [self.weights[kind] for kind in possible])
                case["operations"].append(possible[kind])
                events.update(_events(kind, possible[kind], pool))
            if events.issuperset(self.needs or self.weights):
                return case

    def _possible(self, random: Random, pool: "_Pool", new: str) -> dict[str, dict[str, Any]]:
        """Return an operation of each kind that is possible now; `new` is the name of a new request."""
        owners, found = sorted(pool.blocks), {name: pool.find(name) for name in sorted(pool.hashes)}
        of = {
            "share": [name for name in found if found[name] and name in pool.blocks],
            "revive": [name for name in found if name not in pool.blocks and any(not b.ref_cnt for b in found[name])],
        }
        requests = {
            "cache": [name for name in owners if pool.num_cached[name] < len(pool.blocks[name])],
            "drop": [name for name in owners if pool.dropped[name] < len(pool.blocks[name])],
            "free": owners,
        }
        possible: dict[str, dict[str, Any]] = {}
        for kind in self.weights:
            if kind == "too_many":
                possible[kind] = {"do": "allocate", "request": new, "count": pool.num_free + random.randint(1, 3)}
            elif kind == "allocate" and pool.num_free:
                request = random.choice(owners) if owners and random.random() < 0.3 else new
                possible[kind] = {"do": kind, "request": request, "count": random.randint(1, min(4, pool.num_free))}
            elif of.get(kind):
                possible[kind] = {"do": "share", "request": new, "of": random.choice(of[kind])}
            elif requests.get(kind):
                possible[kind] = {"do": kind, "request": random.choice(requests[kind])}
        return possible

    def run(self, case: Any) -> Any:
        """Return the state after each operation, up to the first that raises an exception or breaks an invariant.

        Raises:
            ValueError: the case has another form.
        """
        _refuse(case)
        states: list[dict[str, Any]] = []
        try:
            pool = _Pool(case["num_blocks"])
            states.append(pool.state(None))
            for operation in case["operations"]:
                if _broken(states[-1]):
                    break
                states.append(pool.apply(operation))
        except NotImplementedError:
            raise
        except Exception as error:
            states.append({"raised": _describe(error)})
        return states

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe an exception or a broken invariant, else the first state that differs from the reference's."""
        for number, (state, right) in enumerate(zip(output, expected, strict=False)):
            en, zh = _place(number, case["operations"][number - 1] if number else None)
            if raised := state.get("raised"):
                return Failure(f"{en}: {raised['en']}", f"{zh}：{raised['zh']}")
            if failure := _broken(state) or _differs(state, right):
                return Failure(f"{en}, {failure.en}", f"{zh}，{failure.zh}")
        return first_difference(len(output), len(expected))

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out the last operations, then single ones."""
        operations = case["operations"]
        for end in (len(operations) // 2, len(operations) - 1):
            if 0 < end < len(operations):
                yield case | {"operations": operations[:end]}
        for index in range(len(operations)):
            yield case | {"operations": operations[:index] + operations[index + 1 :]}


def _events(kind: str, operation: dict[str, Any], pool: "_Pool") -> Iterator[str]:
    """Execute an operation; yield its kind, also with `shared` or `null` if it meets such blocks, and `evict`."""
    source = operation.get("of", operation["request"])
    before, null = pool.num_in_cache, pool.dropped.get(source)
    shared = any(block.ref_cnt > 1 for block in pool.blocks.get(source, []))
    pool.apply(operation)
    yield kind
    if shared:
        yield f"{kind} shared"
    if pool.num_in_cache < before:
        yield "evict"
    if null:
        yield f"{kind} null"


def _refuse(case: Any) -> None:
    """Raise ValueError if a case, which a student may have written, has another form."""
    if not isinstance(case, dict) or set(case) != {"num_blocks", "operations"}:
        raise ValueError("a case is an object with num_blocks and operations")
    if type(case["num_blocks"]) is not int or case["num_blocks"] < 2:
        raise ValueError("num_blocks is a number of at least 2")
    if not isinstance(case["operations"], list):
        raise ValueError("operations is a list")
    owners = set()
    for number, operation in enumerate(case["operations"], 1):
        do = operation.get("do") if isinstance(operation, dict) else None
        if not isinstance(do, str) or do not in _FIELDS:
            raise ValueError(f"operation {number} is {operation}; `do` must be one of {', '.join(_FIELDS)}")
        fields = {"do", "request"} | _FIELDS[do]
        if set(operation) != fields:
            raise ValueError(f"operation {number} has the fields {sorted(operation)}; {do} has {sorted(fields)}")
        if not all(isinstance(operation[name], str) for name in fields - {"count"}):
            raise ValueError(f'operation {number} names a request that is no string, such as "0"')
        if do == "allocate" and (type(operation["count"]) is not int or operation["count"] < 1):
            raise ValueError(f"operation {number} has a count of {operation['count']!r}; it is a number of at least 1")
        if do == "share" and operation["request"] in owners:
            raise ValueError(
                f"operation {number}: request {operation['request']} has blocks, and only a new one shares"
            )
        if do in ("allocate", "share"):
            owners.add(operation["request"])
        elif do == "free":
            owners.discard(operation["request"])


def _describe(error: Exception) -> dict[str, str]:
    """Return an exception and the function of the student's files that raised it, in both languages."""
    message = str(error)[:200].encode(errors="replace").decode()
    what_en = what_zh = type(error).__name__
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename).name
        if file in ("block_pool.py", "kv_cache_utils.py"):
            what_en += f" in {frame.f_code.co_qualname} ({file}:{line})"
            what_zh += f"，位于 {frame.f_code.co_qualname}（{file}:{line}）"
            break
    return {
        "en": f"{what_en}: {message}" if message else what_en,
        "zh": f"{what_zh}：{message}" if message else what_zh,
    }


class _Pool:
    """A pool, and the requests that use it."""

    def __init__(self, num_blocks: int) -> None:
        from tracellm.engine.core.kv_cache.block_pool import BlockPool

        self._pool = BlockPool(num_blocks)
        self.blocks: dict[str, list[Any]] = {}
        self.hashes: dict[str, list[Any]] = {}
        self.num_cached: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        """Number of null blocks at the beginning of a request's list."""

    @property
    def num_free(self) -> int:
        """Number of free blocks."""
        return self._pool.get_num_free_blocks()

    @property
    def num_in_cache(self) -> int:
        """Number of blocks in the prefix cache."""
        return len(self._pool.cached_block_hash_to_block)

    def apply(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Execute an operation, and return the state after it."""
        request, error = operation["request"], None
        if operation["do"] == "allocate":
            try:
                new = self._pool.get_new_blocks(operation["count"])
            except ValueError:
                error = "ValueError"
            else:
                if request not in self.blocks:
                    self._begin(request, [], 0)
                self.blocks[request].extend(new)
        elif operation["do"] == "cache":
            self._cache(request)
        elif operation["do"] == "share":
            self._share(request, operation["of"])
        elif operation["do"] == "drop":
            self._drop(request)
        else:
            self._pool.free_blocks(reversed(self.blocks.pop(request, [])))
        return self.state(error)

    def _begin(self, request: str, blocks: list[Any], dropped: int) -> None:
        self.blocks[request] = blocks
        self.num_cached[request] = len(blocks)
        self.dropped[request] = dropped

    def _cache(self, request: str) -> None:
        if request in self.blocks:
            blocks, hashes = self.blocks[request], self.hashes.setdefault(request, [])
            hashes += [f"{request}:{index}".encode() for index in range(len(hashes), len(blocks))]
            self._pool.cache_full_blocks(blocks, hashes, self.num_cached[request], len(blocks), 0)
            self.num_cached[request] = len(blocks)

    def find(self, request: str) -> list[Any]:
        """Return the cached blocks of a request, which may be freed, behind its null blocks."""
        found = []
        for block_hash in self.hashes.get(request, [])[self.dropped.get(request, 0) :]:
            blocks = self._pool.get_cached_block(block_hash, [0])
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def _share(self, request: str, source: str) -> None:
        found = self.find(source)
        dropped = self.dropped[source] if found else 0
        blocks = [self._pool.null_block] * dropped + found
        self._pool.touch(blocks)
        self.hashes[request] = self.hashes.get(source, [])[: len(blocks)]
        self._begin(request, blocks, dropped)

    def _drop(self, request: str) -> None:
        blocks, first = self.blocks.get(request, []), self.dropped.get(request, 0)
        if first < len(blocks):
            self._pool.free_blocks([blocks[first]])
            blocks[first] = self._pool.null_block
            self.dropped[request] += 1

    def state(self, error: str | None) -> dict[str, Any]:
        """Return the pool as plain data; `owners` leaves out the null blocks of `drop`."""
        pool = self._pool
        limit = 2 * len(pool.blocks)  # a queue that is linked to itself has no end
        free = []
        for block in pool.free_block_queue.get_all_free_blocks():
            free.append(block.block_id)
            if len(free) > limit:
                break
        return {
            "error": error,
            "owners": {
                request: [block.block_id for block in blocks[self.dropped[request] :]]
                for request, blocks in self.blocks.items()
            },
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _requests(names: list[str]) -> str:
    if len(names) == 1:
        return f"request {names[0]}"
    return f"requests {', '.join(names[:-1])} and {names[-1]}"


def _broken(state: dict[str, Any]) -> Failure | None:
    """Return the first invariant that a state breaks."""
    free, owners, references = state["free"], state["owners"], state["ref_cnt"]
    count = Counter(block for blocks in owners.values() for block in blocks)
    if 0 in count:
        name = next(name for name, blocks in owners.items() if 0 in blocks)
        return Failure(f"request {name} was given block 0, the null block", f"请求 {name} 得到了块 0，即占位块")
    if 0 in free:
        return Failure("block 0, the null block, is in the free queue", "块 0（占位块）在空闲队列中")
    if twice := [block for block, times in Counter(free).items() if times > 1]:
        return Failure(f"block {twice[0]} is in the free queue twice", f"块 {twice[0]} 在空闲队列中出现了两次")
    if state["num_free"] != len(free):
        return Failure(
            f"num_free_blocks is {state['num_free']}, and the free queue has {_count(len(free), 'block')}",
            f"num_free_blocks 为 {state['num_free']}，而空闲队列中有 {len(free)} 个块",
        )
    if references[0]:
        return Failure(
            f"block 0, the null block, has a reference count of {references[0]}; it is never counted",
            f"块 0（占位块）的引用计数为 {references[0]}；占位块从不计数",
        )
    for block, number in list(enumerate(references))[1:]:
        names = [name for name, blocks in owners.items() if block in blocks]
        if block in free and names:
            return Failure(
                f"block {block} is in the free queue, and {_requests(names)} {'owns' if len(names) == 1 else 'own'} it",
                f"块 {block} 在空闲队列中，但它属于请求 {'、'.join(names)}",
            )
        if number != count[block]:
            return Failure(
                f"block {block} has a reference count of {number} and {_count(len(names), 'owner')}"
                + (f" ({_requests(names)})" if names else ""),
                f"块 {block} 的引用计数为 {number}，所有者有 {len(names)} 个"
                + (f"（请求 {'、'.join(names)}）" if names else ""),
            )
        if not names and block not in free:
            return Failure(
                f"block {block} has no owner and is not in the free queue: it is lost",
                f"块 {block} 没有所有者，也不在空闲队列中：它丢失了",
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


def _place(number: int, operation: dict[str, Any] | None) -> tuple[str, str]:
    """Return the place of a state in both languages; None stands for no operation yet."""
    if operation is None:
        return "in a new pool", "在新的块池中"
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
        "drop": (f"drop the first block of request {request}", f"丢弃请求 {request} 的第一个块"),
        "free": (f"free request {request}", f"释放请求 {request}"),
    }[operation["do"]]
    return f"after operation {number} ({en})", f"第 {number} 个操作（{zh}）之后"


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
    weights: ClassVar = {"allocate": 3, "cache": 3, "share": 2, "revive": 3, "free": 3}
    needs: ClassVar = ("cache", "share", "revive", "free shared")
    length = 14


class ReusedBlocksAreEvicted(_Operations):
    """A cached block stays in the prefix cache when it is freed, and leaves it when it is allocated again."""

    zh = "缓存块被释放后仍在前缀缓存中，再次分配时才离开。"
    weights: ClassVar = {"allocate": 4, "cache": 3, "free": 3}
    needs: ClassVar = ("free", "evict")
    num_blocks = (4, 7)
    length = 16


class TooManyBlocksAreRefused(_Operations):
    """More blocks than are free raise ValueError, and nothing changes."""

    zh = "请求的块多于空闲块时引发 ValueError，且状态不变。"
    weights: ClassVar = {"allocate": 2, "too_many": 2, "free": 1}


class NullBlocksAreSkipped(_Operations):
    """The null block, which takes the place of a dropped block in a request's list, is neither counted nor freed."""

    zh = "请求块列表中代替被丢弃块的占位块，既不计数，也不释放。"
    weights: ClassVar = {"allocate": 3, "cache": 3, "share": 3, "drop": 4, "free": 2}
    needs: ClassVar = ("share null", "free null")


class AnyOperationsKeepTheInvariant(_Operations):
    """After any operation, each block is free or owned, and its reference count is the number of its owners."""

    zh = "任何操作之后，每个块要么空闲，要么有所有者，引用计数等于所有者的数量。"
    weights: ClassVar = {"allocate": 5, "cache": 4, "share": 2, "revive": 2, "drop": 2, "free": 4, "too_many": 1}
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


class OnlyFreeBlocksCanBeRemoved(Check):
    """Removing a block that is not in the queue raises ValueError, and nothing changes."""

    zh = "移除不在队列中的块会引发 ValueError，且状态不变。"

    def make(self, random: Random) -> Any:
        """See `Check`. Each block that is taken out of the queue is then removed once more."""
        num_blocks = random.randint(5, 12)
        popped = random.randint(1, num_blocks - 3)
        removed = random.sample(range(popped, num_blocks), random.randint(1, 2))
        return {"num_blocks": num_blocks, "popped": popped, "removed": removed}

    def run(self, case: Any) -> Any:
        """Return the queue before, and after each block that is not in it was removed once more."""
        from tracellm.engine.core.kv_cache.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

        blocks = [KVCacheBlock(index) for index in range(case["num_blocks"])]
        queue = FreeKVCacheBlockQueue(blocks)
        outside = queue.popleft_n(case["popped"])
        for index in case["removed"]:
            queue.remove(blocks[index])
            outside.append(blocks[index])
        states = [
            {"free": [block.block_id for block in queue.get_all_free_blocks()], "num_free": queue.num_free_blocks}
        ]
        for block in sorted(outside, key=lambda one: one.block_id):
            error = None
            try:
                queue.remove(block)
            except NotImplementedError:
                raise
            except Exception as raised:
                error = type(raised).__name__
            free = [one.block_id for one, _ in zip(queue.get_all_free_blocks(), blocks, strict=False)]
            states.append({"block": block.block_id, "error": error, "free": free, "num_free": queue.num_free_blocks})
        return states

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe the first block whose removal is not refused, or changes the queue."""
        free, popped = expected[0]["free"], f"popleft_n({case['popped']})"
        for state, right in zip(output, expected, strict=True):
            if state == right:
                continue
            now = f"{state['free']}, num_free_blocks {state['num_free']}"
            if "block" not in right:
                removed, should = case["removed"], f"{free}, num_free_blocks {right['num_free']}"
                return Failure(
                    f"{popped} and the removal of {removed} leave the free queue {now}; it should be {should}",
                    f"执行 {popped} 并移除 {removed} 之后，空闲队列为 {now}；应为 {should}",
                )
            block, error = right["block"], state["error"]
            taken = popped if block < case["popped"] else "remove"
            en = f"the free queue is {free}, and {taken} took block {block} out of it; remove(block {block}) raised"
            zh = f"空闲队列为 {free}，块 {block} 已被 {taken} 取出；此时 remove(块 {block}) "
            if error != right["error"]:
                found_en, found_zh = (error, f"引发了 {error}") if error else ("no error", "没有引发错误")
                return Failure(f"{en} {found_en}; it should raise ValueError", f"{zh}{found_zh}，应引发 ValueError")
            return Failure(f"{en} ValueError, but left the queue {now}", f"{zh}引发了 ValueError，但之后队列为 {now}")
        return None


CHECKS: tuple[Check, ...] = (
    AllocatesFromTheFront(),
    FreedBlocksGoToTheBack(),
    SharedBlocksLeaveTheQueue(),
    ReusedBlocksAreEvicted(),
    TooManyBlocksAreRefused(),
    RemovesFromTheMiddleInConstantTime(),
    AnyOperationsKeepTheInvariant(),
    OnlyFreeBlocksCanBeRemoved(),
    NullBlocksAreSkipped(),
)
