"""Tests of paged attention in every implementation, against the definition in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.ops.attention_batch import Batch
from tests.engine.ops.implementations import UNSHRUNK, Implementation
from tracellm.engine.attention.selector import get_attn_backend
from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec
from tracellm.engine.model_executor.ops.cpu import native

MIXED = [(1, 12), (6, 6), (1, 33), (4, 19), (1, 2)]

EXAMPLES: dict[str, dict[str, Any]] = {
    "torch": {"max_examples": 120},
    "cpu": {"max_examples": 60},
    "triton": {"max_examples": 25, "phases": UNSHRUNK},
}
"""Number of batches tested with each implementation."""


@pytest.fixture
def short_partitions(implementation: Implementation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Split contexts into parts of eight tokens, and disable tuning of Triton's block sizes.

    Tuning would take minutes on a GPU for this many windows and head sizes.
    """
    if implementation.name == "triton":
        from tests.engine.ops.triton_settings import split_contexts, untuned

        untuned(monkeypatch)
        split_contexts(monkeypatch, 8)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)], ids=["multi-head", "grouped", "multi-query"])
@pytest.mark.parametrize(
    "lengths",
    [
        [(7, 7)],
        [(1, 1)],
        [(1, 9), (1, 9)],
        [(1, 9), (1, 1), (1, 30)],
        [(5, 5), (3, 20), (8, 16), (40, 50)],
        MIXED,
    ],
    ids=["prefill", "first token", "decode alike", "decode", "prefills with prefixes", "mixed"],
)
def test_every_kind_of_batch(
    lengths: list[tuple[int, int]], heads: tuple[int, int], implementation: Implementation
) -> None:
    """Prefill, decode, cached prefixes, later chunks and all of them in one call give the definition's result."""
    Batch(lengths, heads=heads, block_size=4, device=implementation.device).check(implementation.name)


@pytest.mark.usefixtures("short_partitions")
def test_any_batch(implementation: Implementation) -> None:
    """Batches of any shape, block order, window and cap give the definition's result, and read no other block."""

    @settings(deadline=None, **EXAMPLES[implementation.name])
    @given(
        lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 25)), min_size=1, max_size=5),
        heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1), (14, 2)]),
        head_size=st.sampled_from([5, 8, 16, 24, 40]),
        block_size=st.sampled_from([1, 2, 3, 4, 16]),
        window=st.none() | st.integers(1, 40),
        cap=st.none() | st.sampled_from([0.5, 50.0]),
        seed=st.integers(0, 10),
    )
    def check(lengths: list[tuple[int, int]], **sizes: Any) -> None:
        whole = [(query, query + prefix) for query, prefix in lengths]
        Batch(whole, device=implementation.device, **sizes).check(implementation.name)

    check()


@pytest.mark.usefixtures("short_partitions")
@pytest.mark.parametrize("window", [1, 3, 4, 5, 8, 19, 33, 1000])
@pytest.mark.parametrize("cap", [None, 1.0], ids=["plain", "capped"])
def test_sliding_window(window: int, cap: float | None, implementation: Implementation) -> None:
    """A window below, at and above the length of a block, a chunk and the context masks exactly the older tokens."""
    batch = Batch(MIXED, heads=(4, 2), block_size=4, window=window, cap=cap, device=implementation.device)
    batch.check(implementation.name)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)], ids=str)
@pytest.mark.parametrize("window", [None, 45])
def test_more_than_a_chunk_of_keys(
    dtype: torch.dtype, near: float, window: int | None, implementation: Implementation
) -> None:
    """Contexts of several chunks and prompts of several tiles give the definition's result, in both dtypes."""
    lengths, device = [(1, 130), (37, 64), (50, 120)], implementation.device
    batch = Batch(lengths, heads=(4, 2), block_size=16, window=window, dtype=dtype, device=device)
    batch.check(implementation.name, near)


@pytest.mark.usefixtures("short_partitions")
@pytest.mark.parametrize("cap", [None, 2.0], ids=["plain", "capped"])
@pytest.mark.parametrize("window", [5, 9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype: torch.dtype, window: int, cap: float | None, implementation: Implementation) -> None:
    """In 16 bits the result has that dtype and is close to the definition's."""
    lengths, device = [(1, 12), (6, 10)], implementation.device
    batch = Batch(lengths, heads=(4, 2), block_size=4, window=window, cap=cap, dtype=dtype, device=device)
    batch.check(implementation.name, 3e-2)


def test_a_sequence_does_not_depend_on_its_neighbours(implementation: Implementation) -> None:
    """A sequence gets the same result alone as in a batch, bit for bit with the CPU's kernels."""
    batch = Batch([(1, 12), (6, 40), (1, 33)], heads=(4, 2), block_size=4, device=implementation.device)
    together = batch.attend(implementation.name)
    near = 0 if implementation.name == "cpu" else 1e-6 if implementation.device == "cpu" else 1e-5
    for row, (start, length) in enumerate([(0, 1), (1, 6), (7, 1)]):
        alone = Batch([batch.lengths[row]], heads=(4, 2), block_size=4, seed=9, device=implementation.device)
        alone.take_over(batch, row)
        result = alone.attend(implementation.name)
        torch.testing.assert_close(result, together[start : start + length], atol=near, rtol=near)


def test_queries_that_lie_apart(implementation: Implementation) -> None:
    """Queries that are a slice of a wider tensor, as in a merged projection, are read correctly."""
    batch = Batch(MIXED, heads=(4, 2), block_size=4, device=implementation.device)
    wide = torch.full((len(batch.query), 9, 16), torch.nan, device=implementation.device)
    wide[:, 2:6] = batch.query
    batch.query = wide[:, 2:6]
    batch.check(implementation.name)


def test_attending_writes_nothing_into_the_cache(implementation: Implementation) -> None:
    """A step's keys and values are stored unchanged in their slots, and every other slot is left unchanged."""
    batch = Batch([(5, 9), (1, 3)], heads=(2, 2), block_size=4, device=implementation.device)
    expected = batch.cache.clone()
    slots = batch.common.slot_mapping
    for side, numbers in zip(expected.flatten(1, 2), (batch.keys, batch.values), strict=True):
        side[slots] = torch.cat([numbers[0][-5:], numbers[1][-1:]]).to(side.device)
    batch.attend(implementation.name)
    torch.testing.assert_close(batch.cache, expected, equal_nan=True, atol=0, rtol=0)


def test_the_reference_reads_no_further_than_a_window() -> None:
    """The reference gathers only as many keys as the widest window when it decodes."""
    batch = Batch([(1, 400), (1, 30), (1, 3)], heads=(2, 1), block_size=4, window=7)
    (group,) = batch.metadata("torch").groups[7]
    assert group.slots.shape == (3, 7)
    batch.window = None
    (group,) = batch.metadata("torch").groups[None]
    assert group.slots.shape == (3, 400)


@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_layers_of_a_group_may_have_different_windows(backend: str) -> None:
    """One metadata builder serves layers with and without a window."""
    batch = Batch(MIXED, heads=(4, 2), block_size=4)
    impls = []
    for batch.window in (None, 5):
        impls.append(batch.impl(backend))
    spec = FullAttentionSpec(4, 2, 16, torch.float32)
    batch.attend(backend)
    metadata = get_attn_backend(backend).get_builder_cls()(spec, impls).build(batch.common)
    for batch.window, impl in zip((None, 5), impls, strict=True):
        key_cache, value_cache = batch.cache.unbind(0)
        output = impl.paged_attention(batch.query, key_cache, value_cache, metadata)
        torch.testing.assert_close(output.double(), batch.expected(), atol=1e-5, rtol=1e-5)


def test_the_backend_falls_back_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without compiled kernels, attention on the CPU is PyTorch's."""
    monkeypatch.setattr(native, "load", lambda: native.Kernels(None, "no compiler"))
    assert get_attn_backend("cpu").get_name() == "torch"
