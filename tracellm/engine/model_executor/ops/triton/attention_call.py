"""One layer's attention in a step, as the kernels are given it: their arguments, and what a launch of them has to do.

All three attention kernels read the same tensors by the same strides and are compiled for the same sizes; what is
particular to one of them is added in its file. A launch's work, its bytes, operations, and the blocks that its programs
read, comes from the plan of the step, whose numbers the host knows, and is asked for by a probe only.

vLLM: the arguments of vllm/attention/ops/triton_unified_attention.py::unified_attention.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import triton
from torch import Tensor

from tracellm.engine.model_executor.ops.interface import AttentionMetadata
from tracellm.engine.model_executor.ops.triton.attention_plan import AttentionPlan, Reads
from tracellm.engine.model_executor.ops.triton.launch import INTERPRETED, Work

__all__ = ["AttentionCall"]

Place = tuple[int | None, ...]


class AttentionCall(NamedTuple):
    """What a layer asks for, and the step's plan; see `Ops.paged_attention`."""

    output: Tensor
    """[T, H, D]: each kernel writes the rows of its own sequences."""
    query: Tensor
    """[T, H, D]"""
    key_cache: Tensor
    """[blocks, block_size, K, D]"""
    value_cache: Tensor
    """The same."""
    metadata: AttentionMetadata
    plan: AttentionPlan
    scale: float
    window: int | None
    soft_cap: float | None

    @property
    def key_heads(self) -> int:
        """K"""
        return self.key_cache.shape[2]

    @property
    def group(self) -> int:
        """G: so many query heads share a key head."""
        return self.query.shape[1] // self.key_heads

    def inputs(self, who: Tensor) -> tuple[Any, ...]:
        """What every kernel reads, in the order of its parameters, from `query` to `table_stride`.

        Args:
            who: in the midst of them: for which sequences, or tiles, the programs are.
        """
        metadata = self.metadata
        return (
            *(self.query, self.key_cache, self.value_cache),
            *(who, metadata.query_start_loc, metadata.seq_lens, metadata.block_table),
            self.scale,
            *self.query.stride()[:2],
            *self.key_cache.stride()[:3],
            metadata.block_table.stride(0),
        )

    def constants(self) -> dict[str, Any]:
        """What every kernel is compiled for."""
        head_size = self.query.shape[2]
        return {
            "GROUP": self.group,
            "HEAD_SIZE": head_size,
            "KV_BLOCK_SIZE": self.key_cache.shape[1],
            "WINDOW": self.window or 0,
            "SOFT_CAP": self.soft_cap or 0.0,
            "WIDEN": INTERPRETED,
            "BLOCK_D": max(16, triton.next_power_of_2(head_size)),
        }

    def work(
        self,
        programs: Sequence[tuple[Place, Reads]],
        *,
        reason: str | None = None,
        bytes_per_row: int | None = None,
    ) -> Work:
        """The work of programs at these places of the grid, each of them for all K key heads.

        Args:
            programs: what each of them reads.
            reason: why this kernel, as a code.
            bytes_per_row: written for each query and head; by default as many as a row of `query` has.
        """
        heads, head_size = self.query.shape[1:]
        row = head_size * self.query.element_size()
        tokens = sum(reads.stop - reads.first for _, reads in programs)
        rows = heads * sum(reads.queries for _, reads in programs)
        return Work(
            bytes_read=self.key_heads * tokens * (2 * head_size * self.key_cache.element_size() + 4) + rows * row,
            bytes_written=rows * (row if bytes_per_row is None else bytes_per_row),
            flops=4 * heads * head_size * sum(reads.pairs for _, reads in programs),
            blocks_read=_blocks_read(programs, self.key_cache.shape[1], self.metadata),
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
