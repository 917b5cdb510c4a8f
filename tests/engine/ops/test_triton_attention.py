"""Attention by Triton's kernels, in the interpreter or on a GPU: against the definition in float64."""

import pytest
import torch
import triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.ops.attention_batch import Batch
from tracellm.engine.ops.triton import TritonOps, attention_plan
from tracellm.engine.ops.triton.attention_plan import plan_attention
from tracellm.engine.ops.triton.attention_varlen import attention_varlen_kernel
from tracellm.engine.ops.triton.launch import INTERPRETED
from tracellm.engine.ops.triton.paged_attention_v1 import paged_attention_v1_kernel
from tracellm.engine.ops.triton.paged_attention_v2 import paged_attention_v2_kernel

ops = TritonOps()

MIXED = [(1, 12), (6, 6), (1, 33), (4, 19), (1, 2)]


@pytest.fixture
def short_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts are split into parts of eight tokens, so that few are enough; what is not written of a part is NaN.

    Nor are block sizes tuned, which on a GPU would take minutes for as many windows and sizes of heads.
    """
    for kernel in (paged_attention_v1_kernel, paged_attention_v2_kernel, attention_varlen_kernel):
        monkeypatch.setattr(kernel, "configs", kernel.configs[:1])
    monkeypatch.setattr(attention_plan, "PARTITION", 8)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: empty(*shape, **options).fill_(torch.nan))


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (6, 1)], ids=["multi-head", "grouped", "multi-query"])
@pytest.mark.parametrize(
    "lengths",
    [[(7, 7)], [(1, 1)], [(1, 9), (1, 1), (1, 30)], [(5, 5), (3, 20), (40, 50)], MIXED],
    ids=["prefill", "first token", "decode", "prefills with prefixes", "mixed"],
)
def test_every_kind_of_batch(lengths: list[tuple[int, int]], heads: tuple[int, int], device: str) -> None:
    """Prefill, decode, cached prefixes, later pieces and all of them in one call give the definition's result."""
    Batch(lengths, heads=heads, block_size=4, device=device).check(ops)


@pytest.mark.usefixtures("short_partitions")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 25)), min_size=1, max_size=3),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    head_size=st.sampled_from([16, 24, 5]),
    block_size=st.sampled_from([1, 3, 4, 16]),
    window=st.none() | st.integers(1, 40),
    cap=st.none() | st.sampled_from([0.5, 50.0]),
    seed=st.integers(0, 10),
)
def test_any_batch(
    lengths: list[tuple[int, int]],
    heads: tuple[int, int],
    head_size: int,
    block_size: int,
    window: int | None,
    cap: float | None,
    seed: int,
    device: str,
) -> None:
    """Whatever lengths, heads, sizes, order of the blocks, window and cap, split or not: the definition's result."""
    whole = [(query, query + prefix) for query, prefix in lengths]
    Batch(
        whole,
        heads=heads,
        head_size=head_size,
        block_size=block_size,
        window=window,
        cap=cap,
        seed=seed,
        device=device,
    ).check(ops)


@pytest.mark.usefixtures("short_partitions")
@pytest.mark.parametrize("window", [1, 4, 5, 19, 1000])
def test_sliding_window(window: int, device: str) -> None:
    """A window below, at and above the length of a block, of a chunk and of the context hides just what it should."""
    Batch(MIXED, heads=(2, 1), block_size=4, window=window, device=device).check(ops)


@pytest.mark.parametrize("partition", [512, 4096], ids=["split", "whole"])
def test_long_contexts(partition: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over more than a thousand tokens nothing is lost to rounding, in one program or in several, in a chunk."""
    monkeypatch.setattr(attention_plan, "PARTITION", partition)
    if INTERPRETED:  # whose time goes by operations, not by numbers
        for kernel in (paged_attention_v1_kernel, paged_attention_v2_kernel, attention_varlen_kernel):
            monkeypatch.setattr(kernel, "configs", [triton.Config({"BLOCK_N": 128})])
    Batch([(1, 1500), (1, 4), (70, 1270)], heads=(2, 1), block_size=16, device=device).check(ops)


@pytest.mark.usefixtures("short_partitions")
@pytest.mark.parametrize("cap", [None, 2.0], ids=["plain", "capped"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, cap: float | None, device: str) -> None:
    """In 16 bits the result has that dtype and comes near."""
    Batch([(1, 12), (6, 10)], heads=(4, 2), block_size=4, window=9, cap=cap, dtype=dtype, device=device).check(
        ops, 3e-2
    )


def test_a_padded_row_gives_zeros(device: str) -> None:
    """A row without a context, as it pads the batch of a CUDA graph, reads nothing and becomes zeros."""
    batch = Batch([(1, 9), (1, 1)], heads=(2, 1), block_size=4, device=device)
    batch.metadata.seq_lens[1] = batch.metadata.seq_lens_cpu[1] = 0
    output = batch.attend(ops)
    assert torch.equal(output[1], torch.zeros_like(output[1]))
    assert output[0].isfinite().all()


def test_queries_that_lie_apart(device: str) -> None:
    """Queries that are a part of a wider tensor, as those of a merged projection, are read where they are."""
    batch = Batch(MIXED, heads=(4, 2), block_size=4, device=device)
    wide = torch.full((len(batch.query), 9, 16), torch.nan, device=device)
    wide[:, 2:6] = batch.query
    batch.query = wide[:, 2:6]
    batch.check(ops)


@pytest.mark.parametrize(
    ("lengths", "key_heads", "partitions", "reason"),
    [
        ([(1, 500), (9, 900)], 2, 1, "short_context"),
        ([(1, 500), (1, 1025)], 2, 3, "few_programs"),
        ([(1, 600)] * 64, 4, 1, "enough_programs"),
    ],
)
def test_the_plan_says_why(
    lengths: list[tuple[int, int]], key_heads: int, partitions: int, reason: str, device: str
) -> None:
    """Contexts are split where there are too few programs, and only of what decodes; the plan says which it was."""
    batch = Batch(lengths, heads=(key_heads, key_heads), head_size=1, block_size=16, device=device)
    plan = plan_attention(batch.metadata, key_heads, key_heads, None)
    assert (plan.partitions, plan.reason) == (partitions, reason)
    assert len(plan.decodes) == sum(queries == 1 for queries, _ in lengths)
    assert plan_attention(batch.metadata, key_heads, key_heads, None) is plan, "worked out once a step"
    assert plan_attention(batch.metadata, key_heads, key_heads, 64).partitions == 1, "a window is a short context"


def test_a_plan_for_sequences_that_grow() -> None:
    """The launches of a CUDA graph suit the longest context, or window; what is read now is what is here."""
    batch = Batch([(1, 500)], heads=(2, 2), block_size=16)
    batch.metadata.max_seq_len = 1500
    for window, partitions in [(None, 3), (1000, 2), (64, 1)]:
        plan = plan_attention(batch.metadata, 2, 2, window)
        assert (plan.partitions, plan.reason) == (partitions, "short_context" if partitions == 1 else "few_programs")
        assert plan.decodes[0].stop == 500
