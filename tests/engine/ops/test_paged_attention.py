"""Paged attention and the writing of the cache, against one query at a time in float64."""

import random
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tracellm.engine.ops import AttentionMetadata
from tracellm.engine.ops.torch_ops import TorchOps, plan_attention

ops = TorchOps()

HEAD_SIZE = 16


class Batch:
    """Sequences of given (query length, length), their blocks anywhere in a paged cache that is NaN everywhere else.

    Blocks before the window of a sequence's first query are taken back, as the KV cache does: the table says 0 there.
    """

    def __init__(
        self,
        lengths: list[tuple[int, int]],
        *,
        heads: tuple[int, int],
        block_size: int,
        window: int | None = None,
        cap: float | None = None,
        seed: int = 0,
    ) -> None:
        self.window, self.cap = window, cap
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.lengths, (num_heads, num_kv_heads) = lengths, heads
        counts = [-(-length // block_size) for _, length in lengths]
        blocks = rng.sample(range(1, sum(counts) + 4), sum(counts))
        table = torch.full((len(lengths), max(counts) + 1), 10**6, dtype=torch.int32)  # beyond a row's blocks: nowhere
        for row, count in enumerate(counts):
            table[row, :count] = torch.tensor([blocks.pop() for _ in range(count)])
        num_queries = sum(query_len for query_len, _ in lengths)

        def randn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        self.query = randn(num_queries, num_heads, HEAD_SIZE)
        self.keys = [randn(length, num_kv_heads, HEAD_SIZE) for _, length in lengths]
        self.values = [randn(length, num_kv_heads, HEAD_SIZE) for _, length in lengths]
        self.cache = torch.full((2, sum(counts) + 4, block_size, num_kv_heads, HEAD_SIZE), torch.nan)
        slots = [table[row, torch.arange(n) // block_size] * block_size + torch.arange(n) % block_size
                 for row, (_, n) in enumerate(lengths)]  # fmt: skip
        for (query_len, length), key, value, where in zip(lengths, self.keys, self.values, slots, strict=True):
            before = length - query_len  # what earlier steps have written
            self.cache[0].flatten(0, 1)[where[:before].long()] = key[:before]
            self.cache[1].flatten(0, 1)[where[:before].long()] = value[:before]
        if window is not None:
            for row, (query_len, length) in enumerate(lengths):
                skipped = max(0, length - query_len - window + 1) // block_size
                self.cache[:, table[row, :skipped].long()] = torch.nan
                table[row, :skipped] = 0
        query_lens = [query_len for query_len, _ in lengths]
        self.metadata = AttentionMetadata(
            query_start_loc=torch.tensor([0, *query_lens]).cumsum(0).int(),
            seq_lens=torch.tensor([length for _, length in lengths], dtype=torch.int32),
            block_table=table,
            slot_mapping=torch.cat([where[-q:] for (q, _), where in zip(lengths, slots, strict=True)]).long(),
            query_lens_cpu=query_lens,
            seq_lens_cpu=[length for _, length in lengths],
        )

    def attend(self) -> Tensor:
        """Write the step's keys and values, then attend; what a layer does."""
        new_keys = torch.cat([key[-q:] for (q, _), key in zip(self.lengths, self.keys, strict=True)])
        new_values = torch.cat([value[-q:] for (q, _), value in zip(self.lengths, self.values, strict=True)])
        key_cache, value_cache = self.cache.unbind(0)
        ops.reshape_and_cache(new_keys, new_values, key_cache, value_cache, self.metadata.slot_mapping)
        return ops.paged_attention(
            self.query,
            key_cache,
            value_cache,
            self.metadata,
            HEAD_SIZE**-0.5,
            sliding_window=self.window,
            logits_soft_cap=self.cap,
        )

    def expected(self) -> Iterator[Tensor]:
        """For each query its attention in float64, straight from the definition."""
        token = 0
        for (query_len, length), key, value in zip(self.lengths, self.keys, self.values, strict=True):
            for position in range(length - query_len, length):
                seen = slice(0 if self.window is None else max(0, position + 1 - self.window), position + 1)
                for head in range(self.query.shape[1]):
                    kv_head = head * key.shape[1] // self.query.shape[1]
                    scores = key[seen, kv_head].double() @ self.query[token, head].double() * HEAD_SIZE**-0.5
                    if self.cap is not None:
                        scores = torch.tanh(scores / self.cap) * self.cap
                    yield scores.softmax(0) @ value[seen, kv_head].double()
                token += 1


def check(batch: Batch) -> None:
    """The result is the definition's, and nothing unowned was read."""
    expected = torch.stack(list(batch.expected())).view(batch.query.shape)
    torch.testing.assert_close(batch.attend().double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)], ids=["multi-head", "grouped", "multi-query"])
@pytest.mark.parametrize(
    "lengths",
    [
        [(7, 7)],
        [(1, 1)],
        [(1, 9), (1, 9)],
        [(1, 9), (1, 1), (1, 30)],
        [(5, 5), (3, 20), (8, 16)],
        [(1, 12), (6, 6), (1, 33), (4, 19), (1, 2)],
    ],
    ids=["prefill", "first token", "decode alike", "decode", "prefills with prefixes", "mixed"],
)
def test_every_kind_of_batch(lengths: list[tuple[int, int]], heads: tuple[int, int]) -> None:
    """Prefill, decode, cached prefixes, later pieces and all of them in one call give the definition's result."""
    check(Batch(lengths, heads=heads, block_size=4))


@settings(max_examples=120, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 25)), min_size=1, max_size=6),
    heads=st.sampled_from([(2, 2), (4, 2), (3, 1)]),
    block_size=st.sampled_from([1, 2, 4, 16]),
    window=st.none() | st.integers(1, 40),
    cap=st.none() | st.sampled_from([0.5, 50.0]),
    seed=st.integers(0, 10),
)
def test_any_batch(
    lengths: list[tuple[int, int]],
    heads: tuple[int, int],
    block_size: int,
    window: int | None,
    cap: float | None,
    seed: int,
) -> None:
    """Whatever the lengths, heads, order of the blocks, window and cap, the result is the definition's."""
    whole = [(query, query + prefix) for query, prefix in lengths]
    check(Batch(whole, heads=heads, block_size=block_size, window=window, cap=cap, seed=seed))


@pytest.mark.parametrize("window", [1, 3, 4, 5, 8, 19, 33, 1000])
@pytest.mark.parametrize("cap", [None, 1.0], ids=["plain", "capped"])
def test_sliding_window(window: int, cap: float | None) -> None:
    """A window below, at and above the length of a block, of a chunk and of the context hides just what it should."""
    check(Batch([(1, 12), (6, 6), (1, 33), (4, 19), (1, 2)], heads=(4, 2), block_size=4, window=window, cap=cap))


def test_a_window_is_not_read_past() -> None:
    """Decoding gathers as many keys as the widest window holds, however long the sequences are."""
    batch = Batch([(1, 400), (1, 30), (1, 3)], heads=(2, 1), block_size=4, window=7)
    (group,) = plan_attention(batch.metadata, 4, 7)
    assert group.slots.shape == (3, 7)
    assert plan_attention(batch.metadata, 4, 7)[0] is group, "worked out once a step"
    assert plan_attention(batch.metadata, 4)[0].slots.shape == (3, 400), "no window: another plan"


def test_a_sequence_does_not_depend_on_its_neighbours() -> None:
    """A sequence gets the same result alone as between others, in whatever blocks."""
    batch = Batch([(1, 12), (6, 10), (1, 33)], heads=(4, 2), block_size=4)
    together = batch.attend()
    for row, (start, length) in enumerate([(0, 1), (1, 6), (7, 1)]):
        alone = Batch([batch.lengths[row]], heads=(4, 2), block_size=4, seed=9)
        alone.query = batch.query[start : start + length]
        alone.keys, alone.values = [batch.keys[row]], [batch.values[row]]
        before = batch.lengths[row][1] - length
        slots = alone.metadata.block_table[0, torch.arange(before) // 4] * 4 + torch.arange(before) % 4
        alone.cache[0].flatten(0, 1)[slots.long()] = batch.keys[row][:before]
        alone.cache[1].flatten(0, 1)[slots.long()] = batch.values[row][:before]
        torch.testing.assert_close(alone.attend(), together[start : start + length], atol=1e-6, rtol=1e-6)


def test_writing_touches_only_the_slots_named() -> None:
    """Keys and values arrive bit for bit in their slots, and every other slot stays as it was."""
    batch = Batch([(5, 9), (1, 3)], heads=(2, 2), block_size=4)
    before = batch.cache.clone()
    batch.attend()
    written = torch.zeros(before.shape[1] * 4, dtype=torch.bool)
    written[batch.metadata.slot_mapping] = True
    now, then = batch.cache.flatten(1, 2), before.flatten(1, 2)
    torch.testing.assert_close(now[:, ~written], then[:, ~written], equal_nan=True, atol=0, rtol=0)
    assert torch.equal(now[0, batch.metadata.slot_mapping], torch.cat([batch.keys[0][-5:], batch.keys[1][-1:]]))
    assert torch.equal(now[1, batch.metadata.slot_mapping], torch.cat([batch.values[0][-5:], batch.values[1][-1:]]))


@pytest.mark.parametrize("cap", [None, 2.0], ids=["plain", "capped"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, cap: float | None) -> None:
    """In 16 bits the result has that dtype and comes near."""
    batch = Batch([(1, 12), (6, 10)], heads=(4, 2), block_size=4, window=5, cap=cap)
    expected = torch.stack(list(batch.expected())).view(batch.query.shape)
    batch.query, batch.cache = batch.query.to(dtype), batch.cache.to(dtype)
    batch.keys, batch.values = ([x.to(dtype) for x in side] for side in (batch.keys, batch.values))
    output = batch.attend()
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), expected, atol=3e-2, rtol=3e-2)
