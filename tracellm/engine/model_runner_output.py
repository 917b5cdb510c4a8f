"""What a step gives back: the tokens that were sampled, from the model runner to the scheduler.

vLLM: vllm/v1/outputs.py. Left out: log probabilities, draft tokens, pooling; added: `logits_shape`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EMPTY_MODEL_RUNNER_OUTPUT", "ModelRunnerOutput", "SamplerOutput"]


@dataclass
class SamplerOutput:
    """The sampler's result, still on the device."""

    sampled_token_ids: Tensor
    """int64 [N, 1]: one token for each row of the logits."""


@dataclass
class ModelRunnerOutput:
    """A step's result; the requests are in the order of the persistent batch, which need not be the scheduler's."""

    req_ids: list[str]
    req_id_to_index: dict[str, int]
    """Where each request is in `req_ids`."""
    sampled_token_ids: list[list[int]]
    """For each request its new token; none while its prompt is not complete."""
    logits_shape: tuple[int, int]
    """Requests that sampled, vocabulary. Row k belongs to the k-th request that has a new token."""


EMPTY_MODEL_RUNNER_OUTPUT = ModelRunnerOutput(req_ids=[], req_id_to_index={}, sampled_token_ids=[], logits_shape=(0, 0))
"""The result of a step that scheduled no tokens."""
