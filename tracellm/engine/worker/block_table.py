"""Block tables: the KV cache blocks of each request of the batch, and the KV cache slot of each token of a step.

They are kept between steps; the scheduler sends only new blocks. vLLM: vllm/v1/worker/block_table.py. Left out:
context parallelism.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.worker.cpu_gpu_buffer import CpuGpuBuffer

__all__ = ["BlockTable", "MultiGroupBlockTable"]


class BlockTable:
    """KV cache blocks of one KV cache group: row i lists those of the batch's row i, in the order of its tokens.

    The entries of blocks that have left a sliding window stay, and are not read: these blocks belong to other requests
    by now, or are the null block.

    vLLM: vllm/v1/worker/block_table.py::BlockTable.
    """

    def __init__(
        self,
        block_size: int,
        max_num_reqs: int,
        max_num_blocks_per_req: int,
        max_num_batched_tokens: int,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        self.block_table = CpuGpuBuffer(max_num_reqs, max_num_blocks_per_req, dtype=torch.int32, device=device)
        self.slot_mapping = CpuGpuBuffer(max_num_batched_tokens, dtype=torch.int64, device=device)
        self.num_blocks_per_row = np.zeros(max_num_reqs, dtype=np.int32)

    def append_row(self, block_ids: list[int], row: int) -> None:
        """Append new blocks of the request in `row`."""
        start = self.num_blocks_per_row[row]
        self.block_table.np[row, start : start + len(block_ids)] = block_ids
        self.num_blocks_per_row[row] += len(block_ids)

    def add_row(self, block_ids: list[int], row: int) -> None:
        """Replace the blocks of `row` by those of another request."""
        self.num_blocks_per_row[row] = 0
        self.append_row(block_ids, row)

    def move_row(self, source: int, target: int) -> None:
        """Move a request from row `source` to row `target`."""
        num_blocks = self.num_blocks_per_row[source]
        self.block_table.np[target, :num_blocks] = self.block_table.np[source, :num_blocks]
        self.num_blocks_per_row[target] = num_blocks

    def pad(self, num_reqs: int, size: int) -> None:
        """Fill rows num_reqs .. size - 1 for requests of one token in the null block."""
        self.block_table.np[num_reqs:size, 0] = 0
        self.slot_mapping.np[num_reqs:size] = 0

    def fill_for_tuning(self, size: int, length: int, num_blocks: int) -> None:
        """Fill rows 0 .. size - 1 for requests of `length` tokens, spread over all blocks of the cache."""
        width = -(-length // self.block_size)
        self.block_table.np[:size, :width] = np.arange(size * width).reshape(size, width) % num_blocks

    def compute_slot_mapping(self, rows: np.ndarray, positions: np.ndarray) -> None:
        """Compute the slots of T tokens; token t is at positions[t] of the request in rows[t]."""
        blocks = self.block_table.np[rows, positions // self.block_size].astype(np.int64)
        self.slot_mapping.np[: len(rows)] = blocks * self.block_size + positions % self.block_size

    def commit_block_table(self, num_reqs: int, padded: int) -> Tensor:
        """Send `padded` rows to the device, and return the first, int32 [num_reqs, most blocks of any of them].

        Without blocks, when a CUDA graph is captured, the rows have their full width.
        """
        width = int(self.num_blocks_per_row[:num_reqs].max()) or self.block_table.np.shape[1]
        return self.block_table.copy_to_gpu(padded)[:num_reqs, :width]

    def commit_slot_mapping(self, num_tokens: int) -> Tensor:
        """Send the slots of the step's tokens to the device, and return them, int64 [num_tokens]."""
        return self.slot_mapping.copy_to_gpu(num_tokens)


class MultiGroupBlockTable:
    """One block table per KV cache group; used by `InputBatch`. A request's blocks are a tuple of one list per group.

    vLLM: vllm/v1/worker/block_table.py::MultiGroupBlockTable.
    """

    def __init__(
        self,
        block_sizes: Sequence[int],
        max_num_reqs: int,
        max_model_len: int,
        max_num_batched_tokens: int,
        device: torch.device,
    ) -> None:
        """Make empty tables; `block_sizes` has the tokens per block of each group."""
        self.block_tables = [
            BlockTable(block_size, max_num_reqs, -(-max_model_len // block_size), max_num_batched_tokens, device)
            for block_size in block_sizes
        ]

    def __getitem__(self, group: int) -> BlockTable:
        return self.block_tables[group]

    def append_row(self, block_ids: tuple[list[int], ...], row: int) -> None:
        """Append new blocks of the request in `row`."""
        for table, blocks in zip(self.block_tables, block_ids, strict=True):
            table.append_row(blocks, row)

    def add_row(self, block_ids: tuple[list[int], ...], row: int) -> None:
        """Replace the blocks of `row` by those of another request."""
        for table, blocks in zip(self.block_tables, block_ids, strict=True):
            table.add_row(blocks, row)

    def move_row(self, source: int, target: int) -> None:
        """Move a request from row `source` to row `target`."""
        for table in self.block_tables:
            table.move_row(source, target)

    def pad(self, num_reqs: int, size: int) -> None:
        """Fill rows num_reqs .. size - 1 for requests of one token in the null block."""
        for table in self.block_tables:
            table.pad(num_reqs, size)

    def fill_for_tuning(self, size: int, length: int, num_blocks: int) -> None:
        """Fill rows 0 .. size - 1 for requests of `length` tokens, spread over all blocks of the cache."""
        for table in self.block_tables:
            table.fill_for_tuning(size, length, num_blocks)

    def compute_slot_mapping(self, rows: np.ndarray, positions: np.ndarray) -> None:
        """Compute the slots of T tokens; token t is at positions[t] of the request in rows[t]."""
        for table in self.block_tables:
            table.compute_slot_mapping(rows, positions)
