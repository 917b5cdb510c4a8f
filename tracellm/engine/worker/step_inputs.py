"""What a step's tensors are called on their way through the model runner: the inputs, and what waits for the sampler.

vLLM: vllm/v1/worker/gpu_model_runner.py, where `_prepare_inputs` returns a tuple; ::ExecuteModelState.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from tracellm.engine.worker.cudagraphs import GraphChoice

__all__ = ["ExecuteModelState", "PreparedInputs"]


@dataclass
class PreparedInputs:
    """A step's inputs: T tokens of R requests, one request after the other in the order of the batch's rows."""

    input_ids: Tensor
    """int32 [T]."""
    positions: Tensor
    """int64 [T]: each token's place in its request, from 0."""
    num_scheduled_tokens: np.ndarray
    """int32 [R]."""
    sampling_rows: list[int]
    """The rows that get a new token: those whose tokens are all computed after this step."""
    logits_indices: Tensor
    """int64 [R]: the last token of each row, among the T."""
    cudagraph: GraphChoice | None
    """Which graph is replayed, if one is; None: this engine has none."""

    @property
    def graph_size(self) -> int | None:
        """Requests in the graph that is replayed, padding among them; None: the step runs eagerly."""
        return None if self.cudagraph is None else self.cudagraph.size


class ExecuteModelState(NamedTuple):
    """What `execute_model` leaves for `sample_tokens`."""

    inputs: PreparedInputs
    logits: Tensor
    """[R, vocabulary], in the model's dtype."""
    hidden_states: Tensor
    """[T, hidden]."""
