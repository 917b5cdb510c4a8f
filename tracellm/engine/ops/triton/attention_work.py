"""What a launch of an attention kernel has to do: bytes, operations, and the blocks that its programs read.

From the plan of the step, whose numbers the host knows; asked for by a probe only.
"""

from collections.abc import Iterable, Sequence

from torch import Tensor

from tracellm.engine.ops.interface import AttentionMetadata
from tracellm.engine.ops.triton.attention_plan import Reads
from tracellm.engine.ops.triton.launch import Work

__all__ = ["attention_work"]

Place = tuple[int | None, ...]


def attention_work(
    programs: Sequence[tuple[Place, Reads]],
    query: Tensor,
    key_cache: Tensor,
    metadata: AttentionMetadata,
    *,
    reason: str | None = None,
    bytes_per_row: int | None = None,
) -> Work:
    """The work of programs at these places of the grid, each of them for all K key heads.

    Args:
        programs: what each of them reads.
        query: [T, H, D].
        key_cache: [blocks, block_size, K, D].
        metadata: of the step.
        reason: why this kernel, as a code.
        bytes_per_row: written for each query and head; by default as many as a row of `query` has.
    """
    heads, head_size = query.shape[1:]
    block_size, key_heads = key_cache.shape[1:3]
    row = head_size * query.element_size()
    tokens = sum(reads.stop - reads.first for _, reads in programs)
    rows = heads * sum(reads.queries for _, reads in programs)
    return Work(
        bytes_read=key_heads * tokens * (2 * head_size * key_cache.element_size() + 4) + rows * row,
        bytes_written=rows * (row if bytes_per_row is None else bytes_per_row),
        flops=4 * heads * head_size * sum(reads.pairs for _, reads in programs),
        blocks_read=_blocks_read(programs, block_size, metadata),
        reason=reason,
    )


def _blocks_read(
    programs: Iterable[tuple[Place, Reads]], block_size: int, metadata: AttentionMetadata
) -> dict[Place, list[int]] | None:
    """Which blocks; None where only the device knows the block table."""
    table = metadata.block_table_cpu
    if table is None:
        return None
    return {
        place: table[reads.sequence, reads.first // block_size : -(-reads.stop // block_size)].tolist()
        for place, reads in programs
    }
