"""Inputs of a step on the device, and what is kept between its forward pass and its sampling.

In a request's life: every step; `GPUModelRunner` makes both.

vLLM: in vllm/v1/worker/gpu_model_runner.py; the inputs are local variables there.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from tracellm.engine.worker.cudagraphs import GraphChoice

__all__ = ["ExecuteModelState", "PreparedInputs"]


@dataclass
class PreparedInputs:
    """Inputs of a step: T tokens of R requests, one request after the other in the order of the batch's rows."""

    input_ids: Tensor
    """int32 [T]."""
    positions: Tensor
    """int64 [T], or [3, T] with M-RoPE: position of each token in its request, from 0."""
    num_scheduled_tokens: np.ndarray
    """int32 [R]."""
    sampling_rows: list[int]
    """Rows that get a new token: those whose tokens are all computed after this step."""
    logits_indices: Tensor
    """int64 [R]: index of each row's last token among the T."""
    cudagraph: GraphChoice | None
    """Choice of a CUDA graph for the step; None if this engine has none."""

    @property
    def graph_size(self) -> int | None:
        """Requests in the graph to replay, including padding; None if the step runs eagerly."""
        return None if self.cudagraph is None else self.cudagraph.size


class ExecuteModelState(NamedTuple):
    """Results of `execute_model` for `sample_tokens`. vLLM: gpu_model_runner.py::ExecuteModelState."""

    inputs: PreparedInputs
    logits: Tensor
    """[R, vocabulary], in the model's dtype."""
    hidden_states: Tensor
    """[T, hidden]."""
