"""Tests of attention by Triton's kernels: long contexts, padding, and the plan of a step.

test_attention.py has the tests that every implementation passes.
"""

import pytest
import torch
import triton

from tests.engine.ops.attention_batch import Batch
from tests.engine.ops.triton_settings import split_contexts, untuned
from tracellm.engine.attention.backends import triton_attn
from tracellm.engine.model_executor.ops.triton.launch import INTERPRETED


@pytest.mark.parametrize("partition", [512, 4096], ids=["split", "whole"])
def test_long_contexts(partition: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a thousand tokens give the definition's result, in one program, in several, or in a chunk."""
    monkeypatch.setattr(triton_attn, "PARTITION", partition)
    if INTERPRETED:  # the interpreter's time depends on operations, not on numbers
        untuned(monkeypatch, [triton.Config({"BLOCK_N": 128})])
    Batch([(1, 1500), (1, 4), (70, 1270)], heads=(2, 1), block_size=16, device=device).check("triton")


@pytest.mark.parametrize("heads", [(1, 1), (3, 1)])
def test_more_parts_than_a_program_holds(heads: tuple[int, int], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partial results of 21 parts are combined a few at a time, wherever the largest score is."""
    untuned(monkeypatch)
    split_contexts(monkeypatch, 8)
    batch = Batch([(1, 161), (1, 3)], heads=heads, block_size=16, device=device)
    batch.query *= 4  # only a few parts have much weight
    assert batch.metadata("triton").plans[None].partitions == 21
    batch.check("triton")


@pytest.mark.parametrize("window", [None, 70])
def test_parts_that_are_longer_than_a_partition(
    window: int | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With enough programs, each takes more of a long context, and as much as before of a short one."""
    untuned(monkeypatch)
    split_contexts(monkeypatch, 8)
    monkeypatch.setattr(triton_attn, "MOST_PROGRAMS", 15)
    batch = Batch([(1, 161), (1, 3), (1, 20)], heads=(2, 1), block_size=16, window=window, device=device)
    plan = batch.metadata("triton").plans[window]
    assert plan.partitions == 5
    batch.check("triton")


@pytest.mark.parametrize("partition", [4, 512], ids=["split", "whole"])
def test_a_padded_row_gives_zeros(partition: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A padding row without a context, as in the batch of a CUDA graph, reads nothing and gives zeros."""
    split_contexts(monkeypatch, partition)
    batch = Batch([(1, 9), (1, 1)], heads=(2, 1), block_size=4, device=device)
    batch.common.seq_lens[1] = batch.common.seq_lens_cpu[1] = 0
    output = batch.attend("triton")
    assert torch.equal(output[1], torch.zeros_like(output[1]))
    assert output[0].isfinite().all()


@pytest.mark.parametrize(
    ("lengths", "key_heads", "partitions"),
    [
        ([(1, 500), (9, 900)], 2, 1),
        ([(1, 500), (1, 1025)], 2, 3),
        ([(1, 600)] * 64, 4, 1),
        ([(1, 9000)] * 63, 2, 9),
    ],
    ids=["short contexts", "few programs", "enough programs", "many programs"],
)
def test_the_plan(lengths: list[tuple[int, int]], key_heads: int, partitions: int, device: str) -> None:
    """Only long contexts of decoding sequences are split, and only if there are too few programs."""
    batch = Batch(lengths, heads=(key_heads, key_heads), head_size=1, block_size=16, device=device)
    plan = batch.metadata("triton").plans[None]
    assert plan.partitions == partitions
    assert len(plan.decode_sequences) == sum(queries == 1 for queries, _ in lengths)
    batch.window = 64
    assert batch.metadata("triton").plans[64].partitions == 1, "a window is a short context"


def test_a_plan_for_sequences_that_grow() -> None:
    """The launches of a CUDA graph fit the longest context, or the window."""
    batch = Batch([(1, 500)], heads=(2, 2), block_size=16)
    batch.common.max_seq_len = 1500
    for batch.window, partitions in [(None, 3), (1000, 2), (64, 1)]:
        assert batch.metadata("triton").plans[batch.window].partitions == partitions
