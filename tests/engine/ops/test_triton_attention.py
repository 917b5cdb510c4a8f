"""Attention by Triton's kernels, in the interpreter or on a GPU: long contexts, padding, and the plan of a step.

What holds for every implementation is in test_attention.py.
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
    """Over more than a thousand tokens nothing is lost to rounding, in one program or in several, in a chunk."""
    monkeypatch.setattr(triton_attn, "PARTITION", partition)
    if INTERPRETED:  # whose time goes by operations, not by numbers
        untuned(monkeypatch, [triton.Config({"BLOCK_N": 128})])
    Batch([(1, 1500), (1, 4), (70, 1270)], heads=(2, 1), block_size=16, device=device).check("triton")


@pytest.mark.parametrize("heads", [(1, 1), (3, 1)])
def test_more_parts_than_a_program_holds(heads: tuple[int, int], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context in 21 parts, the greatest score in any of them, is brought together a few at a time."""
    untuned(monkeypatch)
    split_contexts(monkeypatch, 8)
    batch = Batch([(1, 161), (1, 3)], heads=heads, block_size=16, device=device)
    batch.query *= 4  # so that few parts weigh much
    assert batch.metadata("triton").plans[None].partitions == 21
    batch.check("triton")


@pytest.mark.parametrize("window", [None, 70])
def test_parts_that_are_longer_than_a_partition(
    window: int | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where programs are enough, each takes more of a long context, and those of a short one as much as ever."""
    untuned(monkeypatch)
    split_contexts(monkeypatch, 8)
    monkeypatch.setattr(triton_attn, "MOST_PROGRAMS", 15)
    batch = Batch([(1, 161), (1, 3), (1, 20)], heads=(2, 1), block_size=16, window=window, device=device)
    plan = batch.metadata("triton").plans[window]
    assert plan.partitions == 5
    batch.check("triton")


@pytest.mark.parametrize("partition", [4, 512], ids=["split", "whole"])
def test_a_padded_row_gives_zeros(partition: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row without a context, as it pads the batch of a CUDA graph, reads nothing and becomes zeros."""
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
    """Contexts of decoding sequences are split where there are too few programs, and only where they are long."""
    batch = Batch(lengths, heads=(key_heads, key_heads), head_size=1, block_size=16, device=device)
    plan = batch.metadata("triton").plans[None]
    assert plan.partitions == partitions
    assert len(plan.decode_sequences) == sum(queries == 1 for queries, _ in lengths)
    batch.window = 64
    assert batch.metadata("triton").plans[64].partitions == 1, "a window is a short context"


def test_a_plan_for_sequences_that_grow() -> None:
    """The launches of a CUDA graph suit the longest context, or window."""
    batch = Batch([(1, 500)], heads=(2, 2), block_size=16)
    batch.common.max_seq_len = 1500
    for batch.window, partitions in [(None, 3), (1000, 2), (64, 1)]:
        assert batch.metadata("triton").plans[batch.window].partitions == partitions
