"""CUDA graphs for decode: the launches of a whole forward pass, recorded once at start-up and started as one later.

A decode step of a small batch has hundreds of short kernels; launching them one by one takes the host longer than they
take the GPU. A graph fixes the kernels, their grids and the addresses they read, so it serves one batch size only, and
a batch in between is padded to the next size:

    sizes          1   2   4   8   16  24  32 ...
    11 requests                    [r r r r r r r r r r r . . . . .]    graph 16, padding 5

A padding row (.) is a request of one token, token 0 at position 0, whose key and value go to the null block, which no
request reads; what the model computes for it is dropped. Whatever changes between steps lies in the model runner's
buffers, which never move: token ids, positions, lengths, block tables, slots. So a graph needs operations that plan
nothing on the host that depends on lengths: those of `triton`, whose launches are made for the longest context there
may be. Before the first capture they are tuned, with contexts of a usual length in blocks all over the KV cache.
A step with a piece of a prompt, or with more requests than the largest graph, runs eagerly.

In a request's life: `GPUModelRunner._prepare_inputs` chooses and pads, `_model_forward` replays. Sampling stays
outside. What a graph replays calls no layer, so a recording shows no layers of it: `enforce_eager=True` brings them
back.

vLLM: vllm/v1/cudagraph_dispatcher.py::CudagraphDispatcher (the choice) and
vllm/compilation/cuda_graph.py::CUDAGraphWrapper (the graphs), in the mode FULL_DECODE_ONLY. Left out: graphs of the
pieces between attention layers, for mixed steps.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tracellm.engine.config.vllm_config import VllmConfig

__all__ = ["TUNED_LENGTH", "CudaGraphs", "GraphChoice", "get_capture_sizes", "why_eager"]

_LARGEST = 512

TUNED_LENGTH = 1024
"""Tokens of the contexts with which kernels are tuned: a single token would take the same time in any block size."""


class GraphChoice(NamedTuple):
    """How a step is run, and why. vLLM: vllm/forward_context.py::BatchDescriptor, without the reason."""

    size: int | None
    """Requests in the graph that is replayed; None: eagerly."""
    padding: int
    """How many of them are padding."""
    reason: Literal["decode", "prompt", "too_many_requests"]
    """All decode; some compute more than one token; more decode than the largest graph holds."""


def why_eager(vllm_config: VllmConfig) -> str | None:
    """Why no graphs are captured in this engine; None: they are."""
    if vllm_config.model_config.enforce_eager:
        return "enforce_eager=True"
    if vllm_config.device_config.device.type != "cuda":
        return "there are CUDA graphs on a GPU only"
    if vllm_config.ops_choice.name != "triton":
        return f"the operations `{vllm_config.ops_choice.name}` plan each step on the host"
    from tracellm.engine.model_executor.ops.triton.launch import INTERPRETED

    return "Triton's interpreter launches nothing that could be captured" if INTERPRETED else None


def get_capture_sizes(max_num_seqs: int) -> list[int]:
    """1, 2, 4, then steps of 8, from 256 on of 16: close enough that little is padded, and few enough to capture soon.

    The last is `max_num_seqs`, or 512. vLLM: vllm/config/vllm.py::VllmConfig._set_cudagraph_sizes.
    """
    largest = min(max_num_seqs, _LARGEST)
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, largest, 16)) if size < largest] + [largest]


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    hidden_states: Tensor
    """[size, hidden]: where each replay writes them."""
    forward: Callable[[], Tensor]
    """What was captured; it keeps alive what only the graph knows by address."""


class CudaGraphs:
    """The graphs of one model runner, by batch size."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.sizes = sorted(sizes)
        self._captured: dict[int, _Captured] = {}

    def choose(self, num_reqs: int, num_tokens: int) -> GraphChoice:
        """The smallest graph that holds the step."""
        if num_tokens > num_reqs:
            return GraphChoice(None, 0, "prompt")
        size = next((size for size in self.sizes if size >= num_reqs), None)
        return (
            GraphChoice(None, 0, "too_many_requests") if size is None else GraphChoice(size, size - num_reqs, "decode")
        )

    def capture(self, make_forward: Callable[[int], Callable[[], Tensor]]) -> None:
        """Capture the graph of each size.

        The largest comes first, so that the others find room in its memory: only one is ever replayed at a time.

        Args:
            make_forward: for a size, the forward pass over the runner's buffers; to be called again and again.
        """
        pool = torch.cuda.graph_pool_handle()
        for size in reversed(self.sizes):
            forward = make_forward(size)
            forward()  # compiles and tunes the kernels, and sends to the device what is sent once for a batch
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                hidden_states = forward()
            self._captured[size] = _Captured(graph, hidden_states, forward)

    def replay(self, size: int) -> Tensor:
        """Run the graph of this size; hidden states [size, hidden], good until the next replay."""
        captured = self._captured[size]
        captured.graph.replay()
        return captured.hidden_states
