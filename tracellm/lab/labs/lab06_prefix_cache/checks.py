"""Checks of lab 6: hashes, cached blocks, hits, whole workloads, and decisions recorded from a real vLLM 0.11.1."""

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

from tracellm.lab.checks import Check, Failure, first_difference
from tracellm.lab.labs.lab06_prefix_cache.running import (
    NO_DTYPE,
    Json,
    Workload,
    make_manager,
    make_request,
    recordings,
    run_recording,
    stats_of,
)

__all__ = ["CHECKS"]


def _tokens(random: Random, count: int) -> list[int]:
    return [random.randint(1, 4000) for _ in range(count)]


def _split(token_ids: list[int], size: int) -> list[list[int]]:
    """Return the full blocks of a list of tokens."""
    return [token_ids[end - size : end] for end in range(size, len(token_ids) + 1, size)]


def _hash_chain(blocks: list[list[int]]) -> list[str]:
    """Return the hash of each block, as text."""
    from tracellm.engine.core.kv_cache.kv_cache_utils import hash_block_tokens

    hashes, parent = [], None
    for block in blocks:
        parent = hash_block_tokens(parent, block)
        hashes.append(_as_text(parent))
    return hashes


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else f"{type(value).__name__} {value!r:.40}"


def _number(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"


class HashesNameTheWholePrefix(Check):
    """Two blocks have the same hash exactly if they and all blocks before them hold the same tokens."""

    zh = "两个块的哈希相同，当且仅当它们以及它们之前的所有块都存放相同的 token。"
    cases = 4
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. Pairs of prefixes that are easily mistaken for one another; some prefixes occur twice."""
        first, last = _tokens(random, 2), _tokens(random, 2)
        one, two, three = (random.randint(1, 9) for _ in range(3))
        pairs = [
            [[first, last], [_tokens(random, 2), last]],  # the same block after another one
            [[last], [last, last]],  # the same block as the first and as the second
            [[first, last], [last, first]],
            [[[one, 10 * two + three]], [[10 * one + two, three]]],  # the same digits
            [[first], [first[::-1]]],
            [[first], [[first[0] + 1, first[1] - 1]]],  # the same sum
            [[first], [[first[0] + 256, first[1]]]],
            [[first], [[first[0] + 65536, first[1]]]],
            [[first, last], [[first[0], first[1] + 1], last]],
        ]
        prefixes = [prefix for pair in pairs for prefix in pair]
        return {"prefixes": random.sample(prefixes, len(prefixes))}

    def run(self, case: Any) -> Any:
        """Return the hash of each prefix's last block."""
        return [_hash_chain(blocks)[-1] for blocks in case["prefixes"]]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare all pairs."""
        for value in output:
            if " " in value:
                return Failure(
                    f"hash_block_tokens returned {value}; a hash is bytes",
                    f"hash_block_tokens 返回 {value}；哈希应为 bytes",
                )
        for (one, hash_one), (other, hash_other) in combinations(zip(case["prefixes"], output, strict=True), 2):
            if (one == other) != (hash_one == hash_other):
                same = hash_one == hash_other
                return Failure(
                    f"the blocks {one} and {other} have {'the same hash' if same else 'different hashes'}",
                    f"块 {one} 与 {other} 的哈希{'相同' if same else '不同'}",
                )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep two prefixes."""
        if len(case["prefixes"]) > 2:
            for pair in combinations(case["prefixes"], 2):
                yield {"prefixes": list(pair)}


class RequestsHashTheirFullBlocks(Check):
    """A request has one hash for each full block, however its tokens arrive, and none for a partial block."""

    zh = "无论 token 怎样陆续到来，请求的每个写满的块恰有一个哈希，未写满的块没有。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        size = random.choice([2, 3, 4])
        return {
            "block_size": size,
            "prompt": _tokens(random, random.randint(1, 4 * size)),
            "appended": [_tokens(random, random.choice([1, 1, 1, 2, 2 * size + 1])) for _ in range(6)],
        }

    def run(self, case: Any) -> Any:
        """Return the request's hashes after each arrival, and the hashes of all its blocks, computed one by one."""
        request = make_request("a", case["prompt"], case["block_size"])
        states = [[_as_text(value) for value in request.block_hashes]]
        for token_ids in case["appended"]:
            request.append_output_token_ids(token_ids[0] if len(token_ids) == 1 else token_ids)
            states.append([_as_text(value) for value in request.block_hashes])
        return {"states": states, "chain": _hash_chain(_split(list(request.all_token_ids), case["block_size"]))}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the number of hashes, then each hash."""
        size, count = case["block_size"], 0
        for number, (arrived, hashes) in enumerate(
            zip([case["prompt"], *case["appended"]], output["states"], strict=True)
        ):
            count += len(arrived)
            en = f"after {_number(len(arrived), 'more token')}" if number else "with its prompt"
            zh = f"再来 {len(arrived)} 个 token 后" if number else "只有提示词时"
            full = count // size
            if len(hashes) != full:
                return Failure(
                    f"{en}, the request has {_number(count, 'token')} and {_number(full, 'full block')} of {size}; "
                    f"block_hashes has {_number(len(hashes), 'entry', 'entries')}",
                    f"{zh}，请求有 {count} 个 token，即 {full} 个写满的块（每块 {size} 个）；block_hashes 却有 "
                    f"{len(hashes)} 个哈希",
                )
            for index, (value, right) in enumerate(zip(hashes, output["chain"], strict=False)):
                if value != right:
                    place = f"{index * size} to {(index + 1) * size - 1}"
                    return Failure(
                        f"{en}, block_hashes[{index}] is not the hash of tokens {place} after the block before",
                        f"{zh}，block_hashes[{index}] 不是 token {index * size} 到 {(index + 1) * size - 1}"
                        "（接在前一块之后）的哈希",
                    )
        return None

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out arrivals."""
        appended = case["appended"]
        for count in range(len(appended)):
            for kept in combinations(appended, count):
                yield case | {"appended": list(kept)}


class FullBlocksAreCached(Check):
    """Newly filled blocks enter the prefix cache under their hash and group; content is found in all groups or none."""

    zh = "新写满的块以自己的哈希和组进入前缀缓存；查找要么在所有组中找到，要么都找不到。"
    cases = 6

    def make(self, random: Random) -> Any:
        """See `Check`. Each request caches its blocks in two parts, and the window has left its first block or two."""
        requests: list[Json] = [
            {
                "name": name,
                "group": random.choice([0, 0, 1]),
                "blocks": (count := random.randint(2, 5)),
                "null": random.choice([0, 0, 1, 2]),
                "parts": [random.randint(0, count - 1), count - random.randint(0, 1)],
            }
            for name in random.choices("abc", k=4)
        ]
        names = sorted({one["name"] for one in requests})
        return {
            "requests": requests,
            "find": [[name, index, groups] for name in names for index in range(5) for groups in ([0], [1], [0, 1])],
        }

    def run(self, case: Any) -> Any:
        """Return the cached blocks after each part, and the results of all searches."""
        from tracellm.engine.core.kv_cache.block_pool import BlockPool
        from tracellm.engine.core.kv_cache.kv_cache_utils import BlockHash

        pool = BlockPool(40)
        cached = []
        for one in case["requests"]:
            nulls = [pool.null_block] * one["null"]
            blocks = (nulls + pool.get_new_blocks(one["blocks"]))[: one["blocks"]]
            hashes = [BlockHash(f"{one['name']}{index}".encode()) for index in range(one["blocks"])]
            done = 0
            for full in one["parts"]:
                pool.cache_full_blocks(blocks, hashes[: max(done, full)], done, full, one["group"])
                done = max(done, full)
                cached.append([block.block_id for block in pool.blocks if block.block_hash is not None])
        found = []
        for name, index, groups in case["find"]:
            result = pool.get_cached_block(BlockHash(f"{name}{index}".encode()), groups)
            found.append(None if result is None else [block.block_id for block in result])
        return {"cached": cached, "found": found}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare the cached blocks, then the results."""
        parts = [(one, part) for one in case["requests"] for part in range(2)]
        for (one, part), cached, right in zip(parts, output["cached"], expected["cached"], strict=True):
            if wrong := sorted(set(cached) ^ set(right)):
                block, name = wrong[0], f"{one['name']}, group {one['group']}"
                null, null_zh = (" (the null block)", "（空块）") if block == 0 else ("", "")
                count = one["parts"][part]
                return Failure(
                    f"when the first {_number(count, 'block')} of request {name} are cached, block {block}{null} has "
                    f"{'a' if block in cached else 'no'} hash",
                    f"缓存请求 {one['name']}（组 {one['group']}）的前 {count} 块之后，块 {block}{null_zh} "
                    f"{'有' if block in cached else '没有'}哈希",
                )
        for (name, index, groups), found, right in zip(case["find"], output["found"], expected["found"], strict=True):
            if found != right:
                return Failure(
                    f"get_cached_block for the content {name}{index} in groups {groups} returned blocks {found}; it "
                    f"should return {right}",
                    f"在组 {groups} 中查找内容 {name}{index}，get_cached_block 返回 {found}，应为 {right}",
                )
        return first_difference(output, expected)

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep only some requests, and a single search."""
        for count in range(1, len(case["requests"])):
            for kept in combinations(case["requests"], count):
                yield case | {"requests": list(kept)}


class HitsEndAtTheFirstMiss(Check):
    """A hit is the longest run of cached blocks from the first one on, up to the given length."""

    zh = "命中是从第一个块开始连续缓存的最长一段，且不超过给定长度。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. Some blocks are not cached, in one of the groups or in all."""
        size, count = random.choice([2, 4, 16]), random.randint(2, 7)
        ids = iter(random.sample(range(1, 40), 14))
        missing = random.choice([0.0, 0.2, 0.4])
        cached = [
            [next(ids) if random.random() >= missing else None for _ in range(count)]
            for _ in range(random.randint(1, 2))
        ]
        max_length = random.choice([count * size, random.randint(0, (count + 1) * size)])
        return {"block_size": size, "cached": cached, "max_length": max_length}

    def run(self, case: Any) -> Any:
        """Return the blocks of the hit in each group."""
        from tracellm.engine.core.kv_cache.block_pool import BlockPool
        from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec
        from tracellm.engine.core.kv_cache.kv_cache_utils import BlockHash, make_block_hash_with_group_id
        from tracellm.engine.core.kv_cache.single_type_kv_cache_manager import FullAttentionManager

        pool = BlockPool(40)
        hashes = [BlockHash(f"content {index}".encode()) for index in range(len(case["cached"][0]))]
        for group, ids in enumerate(case["cached"]):
            for block_hash, block_id in zip(hashes, ids, strict=True):
                if block_id is not None:
                    block = pool.blocks[block_id]
                    block.block_hash = make_block_hash_with_group_id(block_hash, group)
                    pool.cached_block_hash_to_block.insert(block.block_hash, block)
        spec = FullAttentionSpec(case["block_size"], 1, 8, NO_DTYPE)
        hit = FullAttentionManager.find_longest_cache_hit(
            hashes, case["max_length"], range(len(case["cached"])), pool, spec
        )
        return [[block.block_id for block in blocks] for blocks in hit]

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compute the hit from the case."""
        size, length, groups = case["block_size"], case["max_length"], case["cached"]
        count = 0
        while count < len(groups[0]) and (count + 1) * size <= length and all(ids[count] for ids in groups):
            count += 1
        right = [ids[:count] for ids in groups]
        if output == right:
            return None
        return Failure(
            f"blocks of {size} tokens, cached per group: {groups}, at most {length} tokens: the hit is {right} "
            f"({count * size} tokens); find_longest_cache_hit returned {output}",
            f"每块 {size} 个 token，各组缓存的块为 {groups}，至多 {length} 个 token：命中应为 {right}"
            f"（{count * size} 个 token）；find_longest_cache_hit 返回 {output}",
        )


class OneTokenIsLeftToCompute(Check):
    """A request takes whole cached blocks but never its last token, and the lookup is counted."""

    zh = "请求只取完整的缓存块，绝不包括它的最后一个 token；每次查找都计入统计。"
    cases = 10
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. The second prompt often ends where a block of the first ends."""
        size = random.choice([2, 4, 8])
        first = _tokens(random, size * random.randint(1, 4) + random.choice([0, 0, 1]))
        same = first[: random.choice([len(first), len(first), size * random.randint(1, len(first) // size)])]
        kind = random.choice(["plain", "plain", "resumed", "prompt_logprobs", "no_caching"])
        return {
            "block_size": size,
            "first": first,
            "second": same + random.choice([[], [], _tokens(random, 3)]),
            "output": _tokens(random, 2) if kind == "resumed" else [],
            "kind": kind,
        }

    def run(self, case: Any) -> Any:
        """Return the hit of the second request, and the statistics of both lookups."""
        size = case["block_size"]
        manager = make_manager(size, 20, caching=case["kind"] != "no_caching")
        first = make_request("first", case["first"], size)
        manager.get_computed_blocks(first)
        manager.allocate_slots(first, first.num_tokens)
        params = {"prompt_logprobs": 1} if case["kind"] == "prompt_logprobs" else {}
        second = make_request("second", case["second"], size, **params)
        second.append_output_token_ids(case["output"])
        second.num_preemptions = 1 if case["kind"] == "resumed" else 0
        blocks, num_tokens = manager.get_computed_blocks(second)
        (block_ids,) = blocks.get_block_ids()
        return {"tokens": num_tokens, "blocks": list(block_ids), "stats": stats_of(manager)}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compute hit and statistics from the case."""
        size, kind = case["block_size"], case["kind"]
        tokens = case["second"] + case["output"]
        same = next((i for i, (a, b) in enumerate(zip(case["first"], tokens, strict=False)) if a != b), None)
        same = min(len(case["first"]), len(tokens)) if same is None else same
        searched = kind not in ("prompt_logprobs", "no_caching")
        hits = min(same, len(tokens) - 1) // size * size if searched else 0
        right = list(range(1, hits // size + 1))
        en = f"a request of {len(tokens)} tokens begins with {same} tokens of another, in blocks of {size}"
        zh = f"请求有 {len(tokens)} 个 token，开头 {same} 个与另一请求相同，每块 {size} 个"
        if not searched:
            why = "wants log probabilities of its prompt" if kind == "prompt_logprobs" else "runs without caching"
            why_zh = "要求提示词的对数概率" if kind == "prompt_logprobs" else "未开启缓存"
            en, zh = f"{en}, and {why}", f"{zh}，并且{why_zh}"
        if output["tokens"] == len(tokens) and searched:
            return Failure(
                f"{en}: all of them are a hit, and no token is left to compute the next one from; the hit is {hits}",
                f"{zh}：全部都算命中，没有留下用来计算下一个 token 的 token；命中应为 {hits} 个",
            )
        if output["tokens"] != hits or output["blocks"] != right:
            return Failure(
                f"{en}: the hit is {hits} tokens in blocks {right}; it is {output['tokens']} in {output['blocks']}",
                f"{zh}：命中应为 {hits} 个 token，即块 {right}；实际为 {output['tokens']} 个，块 {output['blocks']}",
            )
        stats = dict.fromkeys(("requests", "queries", "hits", "preempted_requests", "preempted_queries"), 0)
        stats["preempted_hits"] = 0
        if kind != "no_caching":
            stats |= {"requests": 1, "queries": len(case["first"])}
        if searched:
            prefix = "preempted_" if kind == "resumed" else ""
            for name, number in (("requests", 1), ("queries", len(tokens)), ("hits", hits)):
                stats[prefix + name] += number
        return _stats_differ(output["stats"], stats, en, zh)


def _stats_differ(found: list[list[Any]], stats: dict[str, int], en: str, zh: str) -> Failure | None:
    for name, number in found:
        if number != stats[name]:
            return Failure(
                f"{en}: after all lookups, prefix_cache_stats.{name} is {stats[name]}; it is {number}",
                f"{zh}：所有查找之后，prefix_cache_stats.{name} 应为 {stats[name]}，实际为 {number}",
            )
    return None


class HitsHoldTheRequestsTokens(Check):
    """In random workloads with common prefixes and evictions, hits are right, and blocks are cached once full."""

    zh = "在带公共前缀和驱逐的随机负载中，命中正确，块在写满之后才进入缓存。"
    cases = 8

    def make(self, random: Random) -> Any:
        """See `Check`. What a request generates often goes on as another request's prompt does."""
        size = random.choice([2, 4])
        documents = [_tokens(random, 5 * size) for _ in range(2)]
        documents.append(documents[0][:size] + documents[1][size : 3 * size] + documents[0][3 * size :])
        following: dict[str, list[int]] = {}  # by request: the tokens of its document after its prompt
        operations: list[Json] = []
        weights = {"start": 4, "compute": 4, "generate": 5, "end": 3, "preempt": 1, "resume": 1}
        for number in range(36):
            (kind,) = random.choices(list(weights), list(weights.values()))
            name = f"r{number}" if kind == "start" or not following else random.choice(list(following)[-4:])
            operation: Json = {"do": kind, "request": name}
            if name not in following or kind == "resume":
                document, tail = random.choice(documents), random.choice([[], _tokens(random, 3)])
                length = random.randint(1, len(document))
                following[name] = [] if tail else document[length:]
                prompt = document[:length] + tail
                operation |= {"do": "start", "prompt": prompt, "tokens": random.choice([size + 1, 64])}
            elif kind == "compute":
                operation["tokens"] = random.choice([1, 1, size - 1, 64])
            elif kind == "generate":
                operation["token"] = following[name].pop(0) if following[name] else random.randint(1, 4000)
                operations.append(operation)
                operation = {"do": "compute", "request": name, "tokens": 1}
            elif kind == "end":
                del following[name]
            operations.append(operation)
        return {"block_size": size, "num_blocks": random.randint(8, 16), "operations": operations}

    def run(self, case: Any) -> Any:
        """Return the state after each operation, and the statistics."""
        workload = Workload(case["block_size"], case["num_blocks"])
        return {"states": [workload.apply(one) for one in case["operations"]], "stats": workload.stats()}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Describe a hit with other content, else the first state that differs from the reference's."""
        size = case["block_size"]
        for number, (operation, state, right) in enumerate(
            zip(case["operations"], output["states"], expected["states"], strict=True), start=1
        ):
            failure = _wrong_hit(operation["request"], state, size) or _state_differs(operation, state, right, size)
            if failure is not None:
                en, zh = _described(operation)
                return Failure(f"operation {number} ({en}): {failure.en}", f"第 {number} 个操作（{zh}）：{failure.zh}")
        stats = dict(expected["stats"])
        return _stats_differ(output["stats"], stats, "in the whole workload", "整个负载中")

    def shrink(self, case: Any) -> Iterator[Any]:
        """Keep the operations of only some requests, then the first ones, then all but one."""
        operations = case["operations"]
        names = list(dict.fromkeys(one["request"] for one in operations))
        for count in range(1, min(3, len(names))):
            for kept in combinations(names, count):
                yield case | {"operations": [one for one in operations if one["request"] in kept]}
        for index in reversed(range(len(operations))):
            yield case | {"operations": operations[:index] + operations[index + 1 :]}


def _wrong_hit(name: str, state: Json, size: int) -> Failure | None:
    """Return why a hit cannot be right, or None."""
    if "hits" not in state:
        return None
    tokens, hits, blocks = state["tokens"], state["hits"], state["blocks"]
    if hits >= len(tokens):
        return Failure(
            f"all {len(tokens)} tokens of request {name} are a hit, and none is left to compute",
            f"请求 {name} 的全部 {len(tokens)} 个 token 都算命中，没有留下要计算的",
        )
    if hits != len(blocks) * size:
        return Failure(
            f"the hit of request {name} is {_number(hits, 'token')}, and has {_number(len(blocks), 'block')} of {size}",
            f"请求 {name} 的命中为 {hits} 个 token，却有 {len(blocks)} 个块（每块 {size} 个）",
        )
    for index, (block, holds) in enumerate(zip(blocks, state["holds"], strict=True)):
        begin, end = index * size, (index + 1) * size
        if holds != tokens[:end]:
            own, before = holds[begin:], holds[:begin]
            return Failure(
                f"request {name} shares block {block} as its block {index}: the block holds {own} after {before}; the "
                f"request has {tokens[begin:end]} after {tokens[:begin]}",
                f"请求 {name} 共享块 {block} 作为它的第 {index} 块：该块存放 {own}，之前是 {before}；"
                f"请求则是 {tokens[begin:end]}，之前是 {tokens[:begin]}",
            )
    return None


def _state_differs(operation: Json, state: Json, right: Json, size: int) -> Failure | None:
    name = operation["request"]
    if "hits" in right and state.get("blocks") != right["blocks"]:
        tokens = right["hits"]
        return Failure(
            f"the first {tokens} tokens of request {name} are in the cached blocks {right['blocks']}; the hit has "
            f"blocks {state.get('blocks')}",
            f"请求 {name} 的前 {tokens} 个 token 在缓存块 {right['blocks']} 中；命中的块却是 {state.get('blocks')}",
        )
    if wrong := sorted(set(state["cached"]) ^ set(right["cached"])):
        block = wrong[0]
        filled = dict(map(tuple, right["filled"])).get(block, 0)
        if block in state["cached"]:
            return Failure(
                f"block {block} is in the prefix cache, with {filled} of {size} tokens computed for its request",
                f"块 {block} 在前缀缓存中，而其请求只计算了其中 {filled} 个 token（共 {size} 个）",
            )
        return Failure(
            f"block {block} has {filled} of {size} tokens, and is not in the prefix cache",
            f"块 {block} 已有 {filled} 个 token（共 {size} 个），却不在前缀缓存中",
        )
    return first_difference(state, right)


def _described(operation: Json) -> tuple[str, str]:
    name = operation["request"]
    return {
        "start": (f"request {name} starts", f"请求 {name} 开始"),
        "compute": (f"request {name} computes up to {operation.get('tokens')} tokens", f"请求 {name} 继续计算"),
        "generate": (f"request {name} gets a token", f"请求 {name} 得到一个 token"),
        "end": (f"request {name} ends", f"请求 {name} 结束"),
        "preempt": (f"request {name} is preempted", f"请求 {name} 被抢占"),
    }[operation["do"]]


class DecidesAsVllm(Check):
    """Hits and blocks are those that a real vLLM 0.11.1 had in the same workload, step by step."""

    zh = "在同样的负载下，每一步的命中和块都与真实的 vLLM 0.11.1 相同。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. A recorded workload, up to a step in its last quarter."""
        recorded = random.choice(list(recordings().values()))
        return {
            "recording": recorded["seed"],
            "steps": random.randint(3 * recorded["num_steps"] // 4, recorded["num_steps"]),
        }

    def run(self, case: Any) -> Any:
        """Return what concerns blocks in each step."""
        return run_recording(recordings()[case["recording"]], case["steps"])

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with the recording."""
        recorded = recordings()[case["recording"]]
        none: Json = {"new": [], "resumed": [], "blocks": {}}
        for number, step in enumerate(output, start=1):
            right = recorded["steps"].get(str(number), none)
            free = right.get("free_blocks", step["free_blocks"])
            for key in ("new", "resumed"):
                if failure := _decisions_differ(step[key], right[key]):
                    return Failure(f"step {number}: {failure.en}", f"第 {number} 步：{failure.zh}", number)
            for name in right["blocks"] | step["blocks"]:
                ours, theirs = step["blocks"].get(name, []), right["blocks"].get(name, [])
                if ours != theirs:
                    return Failure(
                        f"step {number}: request {name} got blocks {theirs} in vLLM; here {ours}",
                        f"第 {number} 步：vLLM 中请求 {name} 得到块 {theirs}，这里是 {ours}",
                        number,
                    )
            if step["free_blocks"] != free:
                return Failure(
                    f"step {number}: {free} blocks are free in vLLM; here {step['free_blocks']}",
                    f"第 {number} 步：vLLM 中有 {free} 个空闲块，这里有 {step['free_blocks']} 个",
                    number,
                )
        return None


def _decisions_differ(ours: list[Any], theirs: list[Any]) -> Failure | None:
    """Compare the requests that start in a step, with their hits."""
    mine = {name: hits for name, hits in ours}
    for name, hits in theirs:
        if name in mine and mine[name] != hits:
            return Failure(
                f"request {name} starts with a hit of {hits} tokens in vLLM; here with {mine[name]}",
                f"vLLM 中请求 {name} 开始时命中 {hits} 个 token，这里命中 {mine[name]} 个",
            )
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return Failure(
            f"requests {[name for name, _ in theirs]} start in vLLM; here {[name for name, _ in ours]}",
            f"vLLM 中开始的请求为 {[name for name, _ in theirs]}，这里为 {[name for name, _ in ours]}",
        )
    return None


CHECKS: tuple[Check, ...] = (
    HashesNameTheWholePrefix(),
    RequestsHashTheirFullBlocks(),
    FullBlocksAreCached(),
    HitsEndAtTheFirstMiss(),
    OneTokenIsLeftToCompute(),
    HitsHoldTheRequestsTokens(),
    DecidesAsVllm(),
)
