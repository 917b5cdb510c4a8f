"""The CPU's paged attention, which reads the cache in place, against one query at a time in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.ops.attention_batch import Batch
from tracellm.engine.ops.cpu_ops import CpuOps


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 25)), min_size=1, max_size=5),
    heads=st.sampled_from([(2, 2), (4, 2), (3, 1), (14, 2)]),
    head_size=st.sampled_from([8, 16, 24, 40]),
    block_size=st.sampled_from([1, 4, 16]),
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
) -> None:
    """Whatever the lengths, heads, order of the blocks, window and cap, it is the definition; nothing else is read."""
    whole = [(query, query + prefix) for query, prefix in lengths]
    batch = Batch(whole, heads=heads, head_size=head_size, block_size=block_size, window=window, cap=cap, seed=seed)
    batch.check(CpuOps())


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("window", [None, 45])
def test_more_than_a_chunk_of_keys(dtype: torch.dtype, near: float, window: int | None) -> None:
    """Contexts of several chunks, and prompts of several tasks, in both dtypes."""
    batch = Batch([(1, 130), (37, 64), (50, 120)], heads=(4, 2), block_size=16, window=window, dtype=dtype)
    batch.check(CpuOps(), near)


def test_a_sequence_does_not_depend_on_its_neighbours() -> None:
    """Bit for bit the same, alone and between others."""
    batch = Batch([(1, 12), (6, 40), (1, 33)], heads=(4, 2), block_size=4)
    together, start = batch.attend(CpuOps()), batch.metadata.query_start_loc
    for row in range(3):
        meta = batch.metadata
        tokens = slice(int(start[row]), int(start[row + 1]))
        alone = type(meta)(
            query_start_loc=torch.tensor([0, meta.query_lens_cpu[row]], dtype=torch.int32),
            seq_lens=meta.seq_lens[row : row + 1],
            block_table=meta.block_table[row : row + 1],
            slot_mapping=meta.slot_mapping[tokens],
            query_lens_cpu=meta.query_lens_cpu[row : row + 1],
            seq_lens_cpu=meta.seq_lens_cpu[row : row + 1],
            block_table_cpu=meta.block_table_cpu[row : row + 1],
        )
        key_cache, value_cache = batch.cache.unbind(0)
        result = CpuOps().paged_attention(batch.query[tokens], key_cache, value_cache, alone, batch.scale)
        assert torch.equal(result, together[tokens])
