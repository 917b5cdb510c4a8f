"""CUDA graphs of decode steps: all kernel launches of a forward pass, captured at start-up and replayed as one.

A decode step of a small batch runs hundreds of short kernels, and launching them one by one takes the host longer than
the GPU needs to run them. A graph fixes the kernels, their grids and the addresses they read. So each graph serves one
batch size, and a batch between two sizes is padded to the larger one:

    sizes          1   2   4   8   16  24  32 ...
    11 requests                    [r r r r r r r r r r r . . . . .]    graph 16, padding 5

A padding row (.) is a request of one token, token 0 at position 0. Its key and value go to the null block, which no
request reads, and its results are dropped. What changes between steps is in the model runner's buffers, which never
move: token ids, positions, lengths, block tables, slots. The host must not plan launches by sequence length, so graphs
need the operations `triton`, whose launches are made for the longest possible context. They are tuned before the first
capture, with contexts of a usual length spread over the KV cache. A step with prompt tokens, or with more requests
than the largest graph, runs eagerly.

In a request's life: `GPUModelRunner._prepare_inputs` chooses and pads, `_model_forward` replays. Sampling is not part
of a graph. A replay calls no layers, so a recording shows none; `enforce_eager=True` brings them back.

vLLM: vllm/v1/cudagraph_dispatcher.py::CudagraphDispatcher (the choice) and
vllm/compilation/cuda_graph.py::CUDAGraphWrapper (the graphs), in the mode FULL_DECODE_ONLY. Left out: graphs of the
pieces between attention layers, for mixed steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.model_executor.layers.forward_context import set_forward_context

if TYPE_CHECKING:
    from tracellm.engine.worker.gpu_model_runner import GPUModelRunner

__all__ = ["CudaGraphs", "GraphChoice", "get_capture_sizes", "get_eager_reason", "make_decode_forward"]

_MAX_CAPTURE_SIZE = 512

_TUNED_LENGTH = 1024
"""Context length, in tokens, for tuning the kernels; a single token would take the same time in any block size."""


class GraphChoice(NamedTuple):
    """Choice of a graph for a step. vLLM: vllm/forward_context.py::BatchDescriptor, without the reason."""

    size: int | None
    """Requests in the graph to replay; None if the step runs eagerly."""
    padding: int
    """Number of these requests that are padding."""
    reason: Literal["decode", "prompt", "too_many_requests"]
    """All requests decode; some compute more than one token; more decode than the largest graph holds."""


def get_eager_reason(vllm_config: VllmConfig) -> str | None:
    """Return the reason why this engine captures no graphs, or None if it does."""
    if vllm_config.model_config.enforce_eager:
        return "enforce_eager=True"
    if vllm_config.device_config.device.type != "cuda":
        return "there are CUDA graphs on a GPU only"
    if vllm_config.model_config.is_pooling_model:
        return "pooling has no decode steps"
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        return "graphs of pipeline stages are not supported"
    if vllm_config.ops_choice.name != "triton":
        return f"the operations `{vllm_config.ops_choice.name}` plan each step on the host"
    from tracellm.engine.model_executor.ops.triton.launch import INTERPRETED

    return "Triton's interpreter launches nothing that could be captured" if INTERPRETED else None


def get_capture_sizes(max_num_seqs: int) -> list[int]:
    """Return the batch sizes to capture: 1, 2, 4, multiples of 8, from 256 on of 16; the last is `max_num_seqs` or 512.

    They are dense enough to need little padding, and few enough to be captured quickly.

    vLLM: vllm/config/vllm.py::VllmConfig._set_cudagraph_sizes.
    """
    largest = min(max_num_seqs, _MAX_CAPTURE_SIZE)
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, largest, 16)) if size < largest] + [largest]


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    hidden_states: Tensor
    """[size, hidden]; every replay writes here."""
    forward: Callable[[], Tensor]
    """Captured function; it keeps alive the tensors that the graph refers to by address."""


class CudaGraphs:
    """Captured graphs of one model runner, by batch size."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.sizes = sorted(sizes)
        self._captured: dict[int, _Captured] = {}

    def choose(self, num_reqs: int, num_tokens: int) -> GraphChoice:
        """Choose the smallest graph that holds the step."""
        if num_tokens > num_reqs:
            return GraphChoice(None, 0, "prompt")
        size = next((size for size in self.sizes if size >= num_reqs), None)
        if size is None:
            return GraphChoice(None, 0, "too_many_requests")
        return GraphChoice(size, size - num_reqs, "decode")

    def capture(self, make_forward: Callable[[int], Callable[[], Tensor]]) -> None:
        """Capture the graph of each size.

        The largest comes first, so that the others reuse its memory: only one is replayed at a time.

        Args:
            make_forward: makes the forward pass of a size, which runs over the runner's buffers.
        """
        pool = torch.cuda.graph_pool_handle()
        for size in reversed(self.sizes):
            forward = make_forward(size)
            forward()  # compiles and tunes the kernels, and makes the copies that are made once per batch
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                hidden_states = forward()
            self._captured[size] = _Captured(graph, hidden_states, forward)

    def replay(self, size: int) -> Tensor:
        """Run the graph of this size; hidden states [size, hidden], valid until the next replay."""
        captured = self._captured[size]
        captured.graph.replay()
        return captured.hidden_states


def make_decode_forward(runner: GPUModelRunner, size: int) -> Callable[[], Tensor]:
    """Return a forward pass over the runner's buffers for `size` decoding requests with contexts of any length."""
    max_seq_len = runner.model_config.max_model_len
    length = min(max_seq_len, _TUNED_LENGTH)
    runner.pad_inputs(0, size)
    runner.seq_lens.np[:size] = length
    runner.input_batch.block_table.fill_for_tuning(size, length, runner.kv_caches[0].shape[1])
    input_ids = runner.input_ids.copy_to_gpu(size)
    positions = runner.positions.copy_to_gpu(size)
    metadata = runner.make_attention_metadata(size, size, size, [1] * size, [length] * size, max_seq_len)

    model = runner.model  # `runner` in the closure would be a cycle: runner -> graph -> closure -> runner

    def forward() -> Tensor:
        with set_forward_context(metadata):
            hidden_states: Tensor = model(input_ids, positions)
        return hidden_states

    return forward
