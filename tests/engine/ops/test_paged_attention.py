"""The reference's paged attention and writing of the cache, against the definition in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.ops.attention_batch import Batch
from tracellm.engine.ops.torch_ops import TorchOps, plan_attention

ops = TorchOps()


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
    Batch(lengths, heads=heads, block_size=4).check(ops)


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
    Batch(whole, heads=heads, block_size=block_size, window=window, cap=cap, seed=seed).check(ops)


@pytest.mark.parametrize("window", [1, 3, 4, 5, 8, 19, 33, 1000])
@pytest.mark.parametrize("cap", [None, 1.0], ids=["plain", "capped"])
def test_sliding_window(window: int, cap: float | None) -> None:
    """A window below, at and above the length of a block, of a chunk and of the context hides just what it should."""
    lengths = [(1, 12), (6, 6), (1, 33), (4, 19), (1, 2)]
    Batch(lengths, heads=(4, 2), block_size=4, window=window, cap=cap).check(ops)


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
    together = batch.attend(ops)
    for row, (start, length) in enumerate([(0, 1), (1, 6), (7, 1)]):
        alone = Batch([batch.lengths[row]], heads=(4, 2), block_size=4, seed=9)
        alone.query = batch.query[start : start + length]
        alone.keys, alone.values = [batch.keys[row]], [batch.values[row]]
        before = batch.lengths[row][1] - length
        slots = alone.metadata.block_table[0, torch.arange(before) // 4] * 4 + torch.arange(before) % 4
        alone.cache[0].flatten(0, 1)[slots.long()] = batch.keys[row][:before]
        alone.cache[1].flatten(0, 1)[slots.long()] = batch.values[row][:before]
        torch.testing.assert_close(alone.attend(ops), together[start : start + length], atol=1e-6, rtol=1e-6)


def test_writing_touches_only_the_slots_named() -> None:
    """Keys and values arrive bit for bit in their slots, and every other slot stays as it was."""
    batch = Batch([(5, 9), (1, 3)], heads=(2, 2), block_size=4)
    before = batch.cache.clone()
    batch.attend(ops)
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
    Batch([(1, 12), (6, 10)], heads=(4, 2), block_size=4, window=5, cap=cap, dtype=dtype).check(ops, 3e-2)
