"""Where a step's inputs are put together: buffers that are made once and never move, filled anew in every step.

In a request's life: every step, between `GPUModelRunner._update_states` and the forward pass. That they never move is
what lets CUDA graphs (cudagraphs.py) read them by address.

vLLM: these are attributes of GPUModelRunner, and `prepare` is its `_prepare_inputs`; the newer model runner has them
apart, too, in vllm/v1/worker/gpu/input_batch.py::InputBuffers.
"""

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.worker.cpu_gpu_buffer import CpuGpuBuffer
from tracellm.engine.worker.cudagraphs import CudaGraphs
from tracellm.engine.worker.gpu_input_batch import InputBatch
from tracellm.engine.worker.step_inputs import PreparedInputs

__all__ = ["InputBuffers"]


class InputBuffers:
    """The inputs of a step of up to `max_num_reqs` requests and `max_num_tokens` tokens."""

    def __init__(self, max_num_reqs: int, max_num_tokens: int, device: torch.device) -> None:
        self._arange = np.arange(max(max_num_tokens, max_num_reqs) + 1)
        self.input_ids = CpuGpuBuffer(max_num_tokens, dtype=torch.int32, device=device)
        self.positions = CpuGpuBuffer(max_num_tokens, dtype=torch.int64, device=device)
        self.query_start_loc = CpuGpuBuffer(max_num_reqs + 1, dtype=torch.int32, device=device)
        """Row i has the tokens query_start_loc[i] .. query_start_loc[i + 1] - 1."""
        self.seq_lens = CpuGpuBuffer(max_num_reqs, dtype=torch.int32, device=device)
        """Tokens of each row that are computed after the step."""
        self.logits_indices = CpuGpuBuffer(max_num_reqs, dtype=torch.int64, device=device)
        self._filled = CpuGpuBuffer(max_num_reqs, dtype=torch.int64, device=device)
        self._sampled_rows = CpuGpuBuffer(max_num_reqs, dtype=torch.int64, device=device)

    def prepare(self, batch: InputBatch, num_scheduled: np.ndarray, cudagraphs: CudaGraphs | None) -> PreparedInputs:
        """Gather the step's tokens and their positions, and work out where their keys and values go.

        Args:
            batch: whose tokens.
            num_scheduled: int32 [rows], how many tokens of each row are to be computed.
            cudagraphs: those that the step may be run by, if there are any.
        """
        num_reqs, num_tokens = batch.num_reqs, int(num_scheduled.sum())
        num_computed = batch.num_computed_tokens_cpu[:num_reqs]
        ends = np.cumsum(num_scheduled)

        # Requests of 2, 1 and 3 tokens: rows = [0 0 1 2 2 2], and positions count up from each one's num_computed.
        rows: np.ndarray = self._arange[:num_reqs]
        positions: np.ndarray = num_computed
        if num_tokens > num_reqs:  # else they all decode
            rows = np.repeat(rows, num_scheduled)
            positions = self._arange[:num_tokens] - np.repeat(ends - num_scheduled - num_computed, num_scheduled)
        self.positions.np[:num_tokens] = positions
        self.input_ids.np[:num_tokens] = batch.token_ids_cpu[rows, positions]
        batch.block_table.compute_slot_mapping(rows, positions)

        self.query_start_loc.np[1 : num_reqs + 1] = ends
        self.seq_lens.np[:num_reqs] = num_computed + num_scheduled
        graph = None if cudagraphs is None else cudagraphs.choose(num_reqs, num_tokens)
        padded = num_tokens  # of decoding requests that are padded, there are as many as tokens
        if graph is not None and graph.size is not None:
            padded = graph.size
            self.pad(batch, num_reqs, padded)
        sampling_rows = np.flatnonzero(self.seq_lens.np[:num_reqs] == batch.num_tokens[:num_reqs])
        self.logits_indices.np[:num_reqs] = ends - 1
        return PreparedInputs(
            input_ids=self.input_ids.copy_to_gpu(padded)[:num_tokens],
            positions=self.positions.copy_to_gpu(padded)[:num_tokens],
            num_scheduled_tokens=num_scheduled,
            sampling_rows=sampling_rows.tolist(),
            logits_indices=self.logits_indices.copy_to_gpu(num_reqs),
            cudagraph=graph,
        )

    def fill_in(self, num_tokens: int, sampled_token_ids: Tensor) -> None:
        """Put tokens that only the device knows where there are placeholders for them (async_output.py).

        Args:
            num_tokens: of the step.
            sampled_token_ids: int64 [rows, 1], what the step before has sampled. A row in which every token was
                forbidden holds -1: what is computed for it is thrown away.
        """
        filled = np.flatnonzero(self.input_ids.np[:num_tokens] < 0)
        if count := len(filled):
            self._filled.np[:count] = filled
            self._sampled_rows.np[:count] = -1 - self.input_ids.np[filled]
            tokens = sampled_token_ids[self._sampled_rows.copy_to_gpu(count), 0].clamp(min=0)
            self.input_ids.gpu[self._filled.copy_to_gpu(count)] = tokens.to(torch.int32)

    def pad(self, batch: InputBatch, num_reqs: int, size: int) -> None:
        """Rows num_reqs .. size - 1 of the buffers are requests of one token, with its keys in the null block."""
        self.input_ids.np[num_reqs:size] = 0
        self.positions.np[num_reqs:size] = 0
        self.query_start_loc.np[num_reqs : size + 1] = self._arange[num_reqs : size + 1]
        self.seq_lens.np[num_reqs:size] = 1
        batch.block_table.pad(num_reqs, size)
