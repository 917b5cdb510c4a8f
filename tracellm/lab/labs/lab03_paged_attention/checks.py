"""Checks of lab 3: attention over a paged cache against dense attention in float64.

A case lists sequences: length, number of queries, blocks. Slots that no query may read hold NaN, which poisons what is
computed from it. The value of position p is 0 but in dimension p: the output is the row of attention weights, and shows
which positions a query sees. It is multiplied by a factor for each key head and sequence.
"""

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from tracellm.lab.checks import Check, Failure
from tracellm.lab.tensors import generator, to_plain

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CHECKS"]

_HEAD_SIZE = 16
"""Head size of the cases: more than the longest sequence, so that each position has a dimension of its own."""


class WritesTokensIntoTheirSlots(Check):
    """reshape_and_cache writes each token's key and value into its slot, and nothing else."""

    zh = "reshape_and_cache 把每个 token 的 key 和 value 写入其槽位，不改动其他内容。"
    cases = 6
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`."""
        block_size, num_blocks = random.randint(2, 4), random.randint(3, 5)
        return {
            "block_size": block_size,
            "num_blocks": num_blocks,
            "kv_heads": random.randint(1, 2),
            "slots": random.sample(range(block_size * num_blocks), random.randint(2, 6)),
        }

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out tokens."""
        slots = case["slots"]
        for index in range(len(slots)):
            if len(slots) > 1:
                yield case | {"slots": slots[:index] + slots[index + 1 :]}

    def run(self, case: Any) -> Any:
        """Return both caches afterwards."""
        import torch

        num_tokens, kv_heads = len(case["slots"]), case["kv_heads"]
        key, value = _numbered(num_tokens, kv_heads, 1), _numbered(num_tokens, kv_heads, 101)
        # as in a model, where one product computes both: the tokens of each are apart in memory
        merged = torch.cat((key.flatten(1), value.flatten(1)), dim=1)
        key, value = (part.view(num_tokens, kv_heads, 2) for part in merged.chunk(2, dim=1))
        cache = -_numbered(2 * case["num_blocks"] * case["block_size"], kv_heads, 1)
        cache = cache.view(2, case["num_blocks"], case["block_size"], kv_heads, 2)
        slot_mapping = torch.tensor(case["slots"])
        _make_impl(case | {"heads": kv_heads, "head_size": 2}).reshape_and_cache(
            key, value, *cache.unbind(0), slot_mapping
        )
        return to_plain(cache)

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Name what each slot holds."""
        num_slots, size = case["num_blocks"] * case["block_size"], 2 * case["kv_heads"]
        values, owners = output["values"], {slot: token for token, slot in enumerate(case["slots"])}
        for cache, (name, first) in enumerate((("key", 1), ("value", 101))):
            for slot in range(num_slots):
                start = (cache * num_slots + slot) * size
                old = -(1 + cache * num_slots + slot)
                want = owners[slot] + first if slot in owners else old
                right = [want + (number / 16 if want > 0 else -number / 16) for number in range(size)]
                got = values[start : start + size]
                if got != right:
                    block, offset = divmod(slot, case["block_size"])
                    en, zh = _content(got, old)
                    if slot in owners:
                        wanted, wanted_zh = f"the {name} of token {owners[slot]}", f"token {owners[slot]} 的 {name}"
                    else:
                        wanted, wanted_zh = (
                            "what it held before: no token has this slot",
                            "原内容：没有 token 使用该槽位",
                        )
                    return Failure(
                        f"slot_mapping {case['slots']}: slot {slot} (block {block}, offset {offset}) of the "
                        f"{name} cache holds {en}; it should hold {wanted}",
                        f"slot_mapping 为 {case['slots']}：{name} 缓存的槽位 {slot}（块 {block}，偏移 {offset}）中"
                        f"是{zh}，应为{wanted_zh}",
                    )
        return None


def _numbered(num_tokens: int, kv_heads: int, first: int) -> "Tensor":
    """Return [tokens, K, 2], where a token's elements are its number and some sixteenths."""
    import torch

    numbers = torch.arange(num_tokens, dtype=torch.float32)[:, None] + first
    return (numbers + torch.arange(2 * kv_heads) / 16).view(num_tokens, kv_heads, 2)


def _content(got: list[float], old: int) -> tuple[str, str]:
    """Describe the content of a slot."""
    number = int(got[0])
    in_order = got == [number + index / 16 for index in range(len(got))]
    if got[0] == old:
        return "what it held before", "原内容"
    if in_order and 1 <= number <= 100:
        return f"the key of token {number - 1}", f" token {number - 1} 的 key"
    if in_order and number > 100:
        return f"the value of token {number - 101}", f" token {number - 101} 的 value"
    return f"{got}", f" {got}"


class _Attention(Check):
    """Batches of sequences in a cache that holds NaN elsewhere."""

    uses_reference = False
    num_sequences = (1, 3)
    heads = ((1, 1), (2, 1), (2, 2), (4, 2))
    """Choices of (query heads, key heads)."""
    windows: tuple[int, ...] = ()
    caps: tuple[float | None, ...] = (None,)
    scales: tuple[float, ...] = (_HEAD_SIZE**-0.5,)

    def lengths(self, random: Random) -> tuple[int, int]:
        """Return the length of a sequence and the number of its queries in this step."""
        length = random.randint(2, 14)
        return length, random.choice((1, length, random.randint(1, length)))

    def make(self, random: Random) -> Any:
        """See `Check`. A sequence's blocks are in no order."""
        lengths = [self.lengths(random) for _ in range(random.randint(*self.num_sequences))]
        heads, kv_heads = random.choice(self.heads)
        block_size = random.randint(2, 4)
        counts = [-(-length // block_size) for length, _ in lengths]
        num_blocks = sum(counts) + random.randint(2, 4)
        ids = random.sample(range(num_blocks), sum(counts))
        return {
            "seed": random.randrange(10**6),
            "block_size": block_size,
            "num_blocks": num_blocks,
            "heads": heads,
            "kv_heads": kv_heads,
            "scale": random.choice(self.scales),
            "window": random.choice(self.windows) if self.windows else None,
            "cap": random.choice(self.caps),
            "sequences": [
                {"length": length, "queries": queries, "blocks": [ids.pop() for _ in range(count)]}
                for (length, queries), count in zip(lengths, counts, strict=True)
            ],
        }

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out sequences, then tokens, then heads."""
        sequences = case["sequences"]
        for index, one in enumerate(sequences):
            before, after = sequences[:index], sequences[index + 1 :]
            if len(sequences) > 1:
                yield case | {"sequences": before + after}
            for length, queries in ((one["length"] - 1, one["queries"] - 1), (one["length"] - 1, one["queries"])):
                if 1 <= queries <= length:
                    blocks = one["blocks"][: -(-length // case["block_size"])]
                    shorter = {"length": length, "queries": queries, "blocks": blocks}
                    yield case | {"sequences": [*before, shorter, *after]}
        if case["heads"] > 1:
            yield case | {"heads": 1, "kv_heads": 1}

    def run(self, case: Any) -> Any:
        """Return the output, and the first slot that poisons it if it has a NaN."""
        output = to_plain(_attend(case))
        bad = None
        if any(value != value for value in output.get("values", ())):
            slots = range(case["num_blocks"] * case["block_size"])
            bad = next((slot for slot in slots if _attend(case, poisoned=slot).isnan().any()), None)
        return {"output": output, "poisoned_by": bad}

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare with dense attention."""
        return _judge(case, output["output"], output["poisoned_by"])


def _make_impl(case: Any) -> Any:
    """Make the attention of a layer."""
    from tracellm.engine.attention.backends.torch_attn import TorchAttentionImpl

    size = case.get("head_size", _HEAD_SIZE)
    return TorchAttentionImpl(
        case["heads"], size, case.get("scale", 1.0), case["kv_heads"], case.get("window"), case.get("cap")
    )


def _make_metadata(case: Any, impl: Any, sequences: list[Any]) -> Any:
    """Build the metadata of a step. Entries of the block table that the step does not need hold other blocks."""
    import torch

    from tracellm.engine.attention.backend import CommonAttentionMetadata
    from tracellm.engine.attention.backends.torch_attn import TorchAttentionMetadataBuilder
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    block_size, window = case["block_size"], case.get("window")
    width = max(len(one["blocks"]) for one in sequences) + 2
    table = torch.randint(case["num_blocks"], (len(sequences), width), generator=generator(case["seed"] + 1))
    slots = []
    for row, one in enumerate(sequences):
        first = _first_seen(one, window) // block_size
        count = -(-one["length"] // block_size)
        table[row, first:count] = torch.tensor(one["blocks"][first:count])
        slots += [_slot(case, one, position) for position in range(one["length"] - one["queries"], one["length"])]
    queries = [one["queries"] for one in sequences]
    lengths = [one["length"] for one in sequences]
    common = CommonAttentionMetadata(
        query_start_loc=torch.tensor([0, *queries]).cumsum(0).int(),
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        block_table=table.int(),
        slot_mapping=torch.tensor(slots),
        query_lens_cpu=queries,
        seq_lens_cpu=lengths,
        block_table_cpu=table.int().numpy(),
    )
    shape = (block_size, impl.num_kv_heads, impl.head_size, torch.float32)
    spec = FullAttentionSpec(*shape) if window is None else SlidingWindowSpec(*shape, window)
    return TorchAttentionMetadataBuilder(spec, [impl]).build(common)


def _first_seen(sequence: Any, window: int | None) -> int:
    """Return the first position that any query of the step sees."""
    return 0 if window is None else max(0, sequence["length"] - sequence["queries"] - window + 1)


def _slot(case: Any, sequence: Any, position: int) -> int:
    block: int = sequence["blocks"][position // case["block_size"]]
    return block * case["block_size"] + position % case["block_size"]


def _tensors(case: Any) -> list[tuple["Tensor", "Tensor", "Tensor"]]:
    """Return query [L, H, D], key and value [L, K, D] of each sequence, for all its L positions."""
    import torch

    found, kv_heads = [], case["kv_heads"]
    for number, one in enumerate(case["sequences"]):
        numbers, length = generator(case["seed"] + 2 + one["blocks"][0]), one["length"]
        most = torch.randn(2, _HEAD_SIZE, 8, _HEAD_SIZE, generator=numbers)  # the same numbers for shorter sequences
        factors = 1 + torch.arange(kv_heads) + number / 8
        value = torch.eye(_HEAD_SIZE)[:length, None] * factors[:, None]
        found.append((most[0, :length, : case["heads"]], most[1, :length, :kv_heads], value))
    return found


def _attend(case: Any, poisoned: int | None = None) -> "Tensor":
    """Return the output of the code under test. NaN is in all slots that must not be read, or in one of them only.

    Blocks before the window are free, so they hold NaN too; the first block that the window touches is whole.
    """
    import torch

    impl = _make_impl(case)
    num_slots = case["num_blocks"] * case["block_size"]
    cache = torch.full((2, num_slots, case["kv_heads"], _HEAD_SIZE), torch.nan if poisoned is None else 0.0)
    owned = set()
    for one, (_, key, value) in zip(case["sequences"], _tensors(case), strict=True):
        first_block = _first_seen(one, case["window"]) // case["block_size"]
        for position in range(first_block * case["block_size"], one["length"]):
            slot = _slot(case, one, position)
            owned.add(slot)
            cache[0, slot], cache[1, slot] = key[position], value[position]
    if poisoned is not None and poisoned not in owned:
        cache[:, poisoned] = torch.nan
    metadata = _make_metadata(case, impl, case["sequences"])
    query = torch.cat(
        [query[-one["queries"] :] for one, (query, _, _) in zip(case["sequences"], _tensors(case), strict=True)]
    )
    cache = cache.view(2, case["num_blocks"], case["block_size"], case["kv_heads"], _HEAD_SIZE)
    output: Tensor = impl.paged_attention(query, *cache.unbind(0), metadata)
    return output


def _dense(case: Any) -> "Tensor":
    """Return attention over contiguous tensors in float64, without blocks: [T, H, D]."""
    import torch

    outputs = []
    for one, (query, key, value) in zip(case["sequences"], _tensors(case), strict=True):
        group = case["heads"] // case["kv_heads"]
        key, value = (part.double().repeat_interleave(group, dim=1) for part in (key, value))
        scores = torch.einsum("qhd,shd->hqs", query.double(), key) * case["scale"]
        if case["cap"] is not None:
            scores = case["cap"] * torch.tanh(scores / case["cap"])
        positions = torch.arange(one["length"])
        distance = positions[:, None] - positions
        seen = (distance >= 0) & (distance < (case["window"] or one["length"]))
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        outputs.append(torch.einsum("hqs,shd->qhd", weights, value)[-one["queries"] :])
    return torch.cat(outputs)


def _judge(case: Any, output: Any, poisoned_by: int | None = None) -> Failure | None:
    """Find the first query whose output is wrong, and describe what it sees."""
    right = _dense(case)
    if output.get("shape") != list(right.shape):
        got = output.get("shape", output.get("type"))
        return Failure(
            f"paged_attention returned {got}; it should be a tensor of shape {list(right.shape)}",
            f"paged_attention 返回了 {got}，应为形状 {list(right.shape)} 的张量",
        )
    places = [
        (number, position)
        for number, one in enumerate(case["sequences"])
        for position in range(one["length"] - one["queries"], one["length"])
    ]
    rows = [output["values"][start : start + _HEAD_SIZE] for start in range(0, len(output["values"]), _HEAD_SIZE)]
    for index, row in enumerate(rows):
        token, head = divmod(index, case["heads"])
        want = right[token, head].tolist()
        if all(abs(one - other) <= 1e-4 for one, other in zip(row, want, strict=True)):
            continue
        number, position = places[token]
        failure = _describe(case, number, position, head, row, want, poisoned_by)
        one = case["sequences"][number]
        en = f"sequence {number} (length {one['length']}, blocks {one['blocks']}), query at position {position}"
        zh = f"序列 {number}（长度 {one['length']}，块 {one['blocks']}），位置 {position} 的 query"
        return Failure(f"{en}, head {head}: {failure.en}", f"{zh}，头 {head}：{failure.zh}")
    return None


def _describe(
    case: Any, number: int, position: int, head: int, row: list[float], want: list[float], poisoned_by: int | None
) -> Failure:
    """Describe the weights of one query in comparison with the right ones."""
    if any(value != value for value in row):
        return _poisoned(case, poisoned_by)
    group = case["heads"] // case["kv_heads"]
    key_head, total = head // group, sum(row)
    for other in range(len(case["sequences"])):
        if other != number and abs(total - (1 + key_head + other / 8)) < 1e-3:
            return Failure(f"it reads the tokens of sequence {other}", f"它读取了序列 {other} 的 token")
    for other in range(case["kv_heads"]):
        if other != key_head and abs(total - (1 + other + number / 8)) < 1e-3:
            return Failure(
                f"it reads key head {other}; {case['heads']} query heads share {case['kv_heads']} key heads, so head "
                f"{head} reads key head {head} // {group} = {key_head}",
                f"它读取了 key 头 {other}；{case['heads']} 个 query 头共享 {case['kv_heads']} 个 key 头，"
                f"头 {head} 应读取 key 头 {head} // {group} = {key_head}",
            )
    first = 0 if case["window"] is None else max(0, position - case["window"] + 1)
    right = list(range(first, position + 1))
    extra = [at for at, weight in enumerate(row) if weight > 1e-6 and at not in right]
    missing = [at for at in right if abs(row[at]) < 1e-12]
    if extra or missing:
        seen = sorted({*right, *extra} - set(missing))
        window = "" if case["window"] is None else f" (window {case['window']})"
        window_zh = "" if case["window"] is None else f"（窗口 {case['window']}）"
        return Failure(
            f"it sees {f'positions {_ranges(seen)}' if seen else 'nothing'}; it should see {_ranges(right)}{window}",
            f"它看到的位置是 {_ranges(seen) or '空'}，应为 {_ranges(right)}{window_zh}",
        )
    factor = 1 + key_head + number / 8
    got, wanted = (
        "[" + ", ".join(f"{weight / factor:.3f}" for weight in weights[first : position + 1]) + "]"
        for weights in (row, want)
    )
    settings = f"scale {case['scale']:g}" + ("" if case["cap"] is None else f", soft cap {case['cap']:g}")
    return Failure(
        f"its weights on positions {_ranges(right)} are {got}, with sum {total / factor:.3f}; they should be {wanted} "
        f"({settings})",
        f"它在位置 {_ranges(right)} 上的权重为 {got}，和为 {total / factor:.3f}；应为 {wanted}（{settings}）",
    )


def _ranges(numbers: list[int]) -> str:
    """Return numbers as `0-3, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{one}" if one == other else f"{one}-{other}" for one, other in parts)


def _poisoned(case: Any, slot: int | None) -> Failure:
    """Describe the slot that was read although no query of the step sees it."""
    if slot is None:
        return Failure(
            "its output is NaN: it sees nothing, or a slot was read that holds no token",
            "输出为 NaN：它什么也没看到，或读取了没有 token 的槽位",
        )
    block, offset = divmod(slot, case["block_size"])
    en, zh = "no sequence of the step owns this block", "这个块不属于本 step 的任何序列"
    for number, one in enumerate(case["sequences"]):
        if block in one["blocks"]:
            position = one["blocks"].index(block) * case["block_size"] + offset
            if position >= one["length"]:
                en = f"position {position} of sequence {number}, which ends at {one['length'] - 1}"
                zh = f"即序列 {number} 的位置 {position}，而该序列止于 {one['length'] - 1}"
            else:
                en = f"position {position} of sequence {number}, in a block before the window of its queries"
                zh = f"即序列 {number} 的位置 {position}，所在的块在其 query 的窗口之前"
    return Failure(
        f"its output is NaN: slot {slot} (block {block}, offset {offset}) was read: {en}",
        f"输出为 NaN：读取了槽位 {slot}（块 {block}，偏移 {offset}）：{zh}",
    )


class DecodesSeeTheWholeSequence(_Attention):
    """A single query attends over all tokens of its sequence, however long the others of the batch are."""

    zh = "单个 query 对其序列的所有 token 做注意力，与批次中其他序列的长度无关。"
    cases = 6
    num_sequences = (2, 4)

    def lengths(self, random: Random) -> tuple[int, int]:
        """See `_Attention`."""
        return random.randint(1, 14), 1


class PromptsSeeNothingLater(_Attention):
    """The queries of a whole prompt see their own position and those before it."""

    zh = "整个提示词的每个 query 只看到自己的位置及之前的位置。"
    cases = 4

    def lengths(self, random: Random) -> tuple[int, int]:
        """See `_Attention`."""
        length = random.randint(2, 10)
        return length, length


class ChunksSeeTheirContext(_Attention):
    """The queries of a later chunk also see the tokens of earlier steps, which are only in the cache."""

    zh = "后续分块的 query 也能看到之前 step 的 token，这些 token 只存在于缓存中。"
    cases = 5

    def lengths(self, random: Random) -> tuple[int, int]:
        """See `_Attention`."""
        length = random.randint(4, 14)
        return length, random.randint(2, length - 1)


class HeadsShareKeyHeads(_Attention):
    """Query head h reads key head h // (H / K)."""

    zh = "query 头 h 读取 key 头 h // (H / K)。"
    cases = 4
    heads = ((4, 2), (6, 2), (6, 3), (8, 2))


class ScoresAreScaledAndCapped(_Attention):
    """Scores are multiplied by the layer's scale; with a soft cap c, a score s becomes c * tanh(s / c)."""

    zh = "分数乘以该层的 scale；若有软上限 c，分数 s 变为 c * tanh(s / c)。"
    cases = 6
    scales = (0.1, 0.5)
    caps = (None, None, 1.0, 3.0)


class WindowsHideEarlierTokens(_Attention):
    """With a sliding window w, a query sees its own position and the w - 1 before it; earlier slots are not read."""

    zh = "滑动窗口为 w 时，query 只看到自己的位置及之前 w - 1 个位置；更早的槽位不会被读取。"
    cases = 6
    windows = (1, 2, 3, 5)


class AnyBatchInAnyBlocks(_Attention):
    """Prompts, chunks and decodes in one batch, with blocks anywhere, do not disturb each other."""

    zh = "同一批次中的提示词、分块和解码，无论块在哪里，都互不影响。"
    cases = 6
    num_sequences = (3, 5)
    windows = (2, 4, 100)


class StepsContinueASequence(Check):
    """A prompt comes in chunks of the token budget, then tokens one by one: each step writes, then attends."""

    zh = "提示词按 token 预算分块输入，之后逐个 token 输入：每个 step 先写入，再做注意力。"
    cases = 4
    uses_reference = False

    def make(self, random: Random) -> Any:
        """See `Check`. The engine can run the same steps: `explain.py` does."""
        return {
            "seed": random.randrange(10**6),
            "prompt": random.randint(9, 13),
            "budget": random.randint(4, 8),
            "decodes": random.randint(1, 3),
            "blocks": random.sample(range(5), 2),
        }

    def shrink(self, case: Any) -> Iterator[Any]:
        """Leave out tokens, from the end."""
        if case["decodes"] > 0:
            yield case | {"decodes": case["decodes"] - 1}
        elif case["prompt"] > 1:
            yield case | {"prompt": case["prompt"] - 1}

    def run(self, case: Any) -> Any:
        """Return the output of each step."""
        import torch

        whole = _case_of_step(case, case["prompt"] + case["decodes"], 1)
        impl, (query, key, value) = _make_impl(whole), _tensors(whole)[0]
        cache = torch.full((2, whole["num_blocks"], whole["block_size"], whole["kv_heads"], _HEAD_SIZE), torch.nan)
        outputs = []
        for length, queries in _steps(case):
            step = slice(length - queries, length)
            metadata = _make_metadata(whole, impl, _case_of_step(case, length, queries)["sequences"])
            outputs.append(to_plain(impl.forward(query[step], key[step], value[step], cache, metadata)))
        return outputs

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Compare each step."""
        for number, ((length, queries), plain) in enumerate(zip(_steps(case), output, strict=True), start=1):
            failure = _judge(_case_of_step(case, length, queries), plain)
            if failure is not None:
                return Failure(f"step {number}: {failure.en}", f"step {number}：{failure.zh}", step=number)
        return None


def _steps(case: Any) -> list[tuple[int, int]]:
    """Return the length after each step and its number of tokens."""
    prompt, budget = case["prompt"], case["budget"]
    ends = [*range(budget, prompt, budget), prompt]
    steps = [(end, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    return steps + [(prompt + number, 1) for number in range(1, case["decodes"] + 1)]


def _case_of_step(case: Any, length: int, queries: int) -> Any:
    """Return a step in the form of the other checks' cases."""
    return {
        "seed": case["seed"],
        "block_size": 8,
        "num_blocks": 5,
        "heads": 4,
        "kv_heads": 2,
        "scale": _HEAD_SIZE**-0.5,
        "window": None,
        "cap": None,
        "sequences": [{"length": length, "queries": queries, "blocks": case["blocks"]}],
    }


CHECKS: tuple[Check, ...] = (
    WritesTokensIntoTheirSlots(),
    DecodesSeeTheWholeSequence(),
    PromptsSeeNothingLater(),
    ChunksSeeTheirContext(),
    HeadsShareKeyHeads(),
    ScoresAreScaledAndCapped(),
    WindowsHideEarlierTokens(),
    AnyBatchInAnyBlocks(),
    StepsContinueASequence(),
)
