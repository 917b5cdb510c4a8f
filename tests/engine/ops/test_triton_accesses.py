"""Tests of the work that attention launches report, against the interpreter's actual memory accesses."""

from itertools import product
from typing import Any

import pytest

from tests.engine.ops.attention_batch import Batch
from tests.engine.ops.watched import Launch, watched
from tracellm.engine.attention.backends import triton_attn
from tracellm.engine.attention.ops import attention_varlen, paged_attention_v1, paged_attention_v2

BATCHES: dict[str, dict[str, Any]] = {
    "decode": {"lengths": [(1, 9), (1, 1), (1, 30)], "heads": (4, 2)},
    "split": {"lengths": [(1, 9), (1, 1), (1, 30)], "heads": (2, 2), "partition": 8},
    "shared": {"lengths": [(1, 9), (1, 1), (1, 30)], "heads": (2, 2), "partition": 4, "programs": 12},
    "window": {"lengths": [(1, 33), (6, 29), (1, 2)], "heads": (2, 1), "window": 7, "partition": 4},
    "mixed": {"lengths": [(1, 12), (70, 75), (4, 19)], "heads": (3, 1)},
}


def launches_of(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Batch, list[Launch]]:
    """Run a batch's attention; return the batch and its launches."""
    given = dict(BATCHES[name])
    monkeypatch.setattr(triton_attn, "PARTITION", given.pop("partition", 512))
    monkeypatch.setattr(triton_attn, "MOST_PROGRAMS", given.pop("programs", 1024))
    batch = Batch(**given, block_size=4)
    with watched(paged_attention_v1, paged_attention_v2, attention_varlen) as launches:
        batch.attend("triton")
    return batch, launches


@pytest.mark.parametrize("name", BATCHES)
def test_blocks_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program reads the blocks that its launch reports, in that order, for keys and values."""
    batch, launches = launches_of(name, monkeypatch)
    for launch in launches:
        if launch.work.blocks_read is None:
            assert launch.name == "paged_attention_v2_reduce_kernel"
            assert launch.blocks_read(batch.cache[0]) == {}
            continue
        expected = {
            program: blocks
            for grid_index, blocks in launch.work.blocks_read.items()
            for program in product(
                *(range(size) if at is None else [at] for at, size in zip(grid_index, launch.grid, strict=True))
            )
        }
        assert launch.blocks_read(batch.cache[0]) == expected
        assert launch.blocks_read(batch.cache[1]) == expected


@pytest.mark.parametrize("name", BATCHES)
def test_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch reports exactly the bytes that its programs read and write."""
    _, launches = launches_of(name, monkeypatch)
    assert len(launches) == {"decode": 1, "split": 2, "shared": 2, "window": 3, "mixed": 2}[name]
    for launch in launches:
        assert (launch.work.bytes_read, launch.work.bytes_written) == (launch.bytes_read(), launch.bytes_written())


def test_operations() -> None:
    """A launch reports 2 * 2 * D operations for each query head and each key that it attends to."""
    batch = Batch([(1, 12), (6, 10)], heads=(4, 2), block_size=4, window=5)
    with watched(paged_attention_v1, attention_varlen) as (launches):
        batch.attend("triton")
    assert [launch.work.flops for launch in launches] == [4 * 4 * 16 * 5, 4 * 4 * 16 * (6 * 5)]
