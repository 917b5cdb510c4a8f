"""Predictions of lab 3: the slot of a token, the key head of a query head, the keys that the queries of a chunk see."""

from random import Random
from typing import Any

from tracellm.lab.predictions import Prediction
from tracellm.lab.tensors import generator

__all__ = ["PREDICTIONS"]


def _impl(heads: int, kv_heads: int, head_size: int) -> Any:
    from tracellm.engine.attention.backends.torch_attn import TorchAttentionImpl

    return TorchAttentionImpl(heads, head_size, 1.0, kv_heads)


def _attend(impl: Any, block_size: int, query: Any, cache: Any, blocks: list[int]) -> Any:
    """Attend with the queries of one sequence, whose blocks are all full."""
    import torch

    from tracellm.engine.attention.backend import CommonAttentionMetadata
    from tracellm.engine.attention.backends.torch_attn import TorchAttentionMetadataBuilder
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec

    num_queries, length = len(query), len(blocks) * block_size
    common = CommonAttentionMetadata(
        query_start_loc=torch.tensor([0, num_queries], dtype=torch.int32),
        seq_lens=torch.tensor([length], dtype=torch.int32),
        block_table=torch.tensor([blocks], dtype=torch.int32),
        slot_mapping=torch.zeros(num_queries, dtype=torch.int64),
        query_lens_cpu=[num_queries],
        seq_lens_cpu=[length],
    )
    spec = FullAttentionSpec(block_size, impl.num_kv_heads, impl.head_size, torch.float32)
    metadata = TorchAttentionMetadataBuilder(spec, [impl]).build(common)
    return impl.paged_attention(query, *cache.unbind(0), metadata)


class SlotOfAToken(Prediction):
    """A block table translates a position to a slot."""

    name = "slot-of-a-token"

    def make(self, random: Random) -> Any:
        """Return a block size, a sequence's blocks and a position."""
        blocks = random.sample(range(40), 4)
        block_size = random.choice((8, 16))
        return {"block_size": block_size, "blocks": blocks, "position": random.randrange(block_size, 4 * block_size)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, blocks, position = case["block_size"], case["blocks"], case["position"]
        if lang == "zh":
            return f"块大小为 {size}，某序列的块依次为 {blocks}。其位置 {position} 的 token 在哪个槽位？（一个整数）"
        return (
            f"Blocks have {size} slots, and the blocks of a sequence are {blocks}. In which slot is its token at "
            f"position {position}? (a whole number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`. One key is like the query: its slot is where the output comes from."""
        import torch

        size, num_slots = case["block_size"], 40 * case["block_size"]
        at = case["position"]
        cache = torch.zeros(2, num_slots, 1, 1)
        cache[1, :, 0, 0] = torch.arange(num_slots)
        cache = cache.view(2, 40, size, 1, 1)
        cache[0, case["blocks"][at // size], at % size] = 100.0
        output = _attend(_impl(1, 1, 1), size, torch.ones(1, 1, 1), cache, case["blocks"])
        return round(float(output))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        size, position = case["block_size"], case["position"]
        index, offset = divmod(position, size)
        block, answer = case["blocks"][index], self.answer(case)
        if lang == "zh":
            return (
                f"{position} // {size} = {index}，即块 {block}；偏移 {position} % {size} = {offset}：槽位 "
                f"{block} * {size} + {offset} = {answer}。"
            )
        return (
            f"{position} // {size} = {index}: block {block}. The offset is {position} % {size} = {offset}. The slot is "
            f"{block} * {size} + {offset} = {answer}."
        )


class KeyHeadOfAHead(Prediction):
    """Neighbouring query heads share a key head."""

    name = "key-head-of-a-head"

    def make(self, random: Random) -> Any:
        """Return numbers of heads, and a query head."""
        kv_heads = random.choice((2, 4, 8))
        heads = kv_heads * random.choice((3, 4, 7))
        return {"heads": heads, "kv_heads": kv_heads, "head": random.randrange(1, heads)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        heads, kv_heads, head = case["heads"], case["kv_heads"], case["head"]
        if lang == "zh":
            return (
                f"模型有 {heads} 个 query 头和 {kv_heads} 个 key 头（从 0 编号）。"
                f"query 头 {head} 读取哪个 key 头？（一个整数）"
            )
        return (
            f"A model has {heads} query heads and {kv_heads} key heads, from 0. Which key head does query head {head} "
            "read? (a whole number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`. The values of each key head are its number."""
        import torch

        cache = torch.zeros(2, 1, 8, case["kv_heads"], 1)
        cache[1] += torch.arange(case["kv_heads"])[:, None]
        impl = _impl(case["heads"], case["kv_heads"], 1)
        output = _attend(impl, 8, torch.ones(1, case["heads"], 1), cache, [0])
        return round(float(output[0, case["head"]]))

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        group, head, answer = case["heads"] // case["kv_heads"], case["head"], self.answer(case)
        if lang == "zh":
            return f"每 {group} 个相邻的 query 头共享一个 key 头：{head} // {group} = {answer}。"
        return f"Each {group} neighbouring query heads share a key head: {head} // {group} = {answer}."


class KeysOfAChunk(Prediction):
    """The queries of a chunk see the context before it, and a part of the chunk."""

    name = "keys-of-a-chunk"

    def make(self, random: Random) -> Any:
        """Return the length of a sequence and of its last chunk; the sequence fills its blocks."""
        length = 8 * random.randint(3, 6)
        return {"length": length, "queries": random.randint(4, 10), "seed": random.randrange(1000)}

    def question(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        length, queries = case["length"], case["queries"]
        if lang == "zh":
            return (
                f"一个提示词有 {length} 个 token，最后一个分块含其中最后 {queries} 个。这 {queries} 个 query 总共看到"
                "多少个 key（每个 query 看到的数量之和）？（一个整数）"
            )
        return (
            f"A prompt has {length} tokens; the last chunk has the last {queries} of them. How many keys do these "
            f"{queries} queries see, added over the queries? (a whole number)"
        )

    def answer(self, case: Any) -> int:
        """See `Prediction`. With one-hot values the output is the row of weights: those above 0 are counted."""
        import torch

        length, blocks = case["length"], list(range(case["length"] // 8))
        cache = torch.zeros(2, length, 1, length)
        cache[1, :, 0] = torch.eye(length)
        query = torch.randn(case["queries"], 1, length, generator=generator(case["seed"]))
        output = _attend(_impl(1, 1, length), 8, query, cache.view(2, -1, 8, 1, length), blocks)
        return int((output > 0).sum())

    def reason(self, case: Any, lang: str) -> str:
        """See `Prediction`."""
        length, queries, answer = case["length"], case["queries"], self.answer(case)
        first = length - queries + 1
        if lang == "zh":
            return f"第一个 query 看到 {first} 个 key，最后一个看到 {length} 个：{first} + … + {length} = {answer}。"
        return f"The first query sees {first} keys, the last one {length}: {first} + ... + {length} = {answer}."


PREDICTIONS: tuple[Prediction, ...] = (SlotOfAToken(), KeyHeadOfAHead(), KeysOfAChunk())
