"""What a step gives back, from the model runner to the scheduler: the sampled tokens, and how likely they were.

In a request's life: the end of every step. The sampler makes a `SamplerOutput`, still on the device; the model runner
brings it to the host and makes a `ModelRunnerOutput` of it.

vLLM: vllm/v1/outputs.py. Left out: draft tokens, pooling, KV connectors; added: `logits_shape`, `errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

__all__ = [
    "EMPTY_MODEL_RUNNER_OUTPUT",
    "AsyncModelRunnerOutput",
    "LogprobsLists",
    "LogprobsTensors",
    "ModelRunnerOutput",
    "SamplerOutput",
    "import_array_types",
]


def import_array_types() -> None:
    """Make the annotations below known at run time too, for a decoder that makes such objects out of bytes.

    Not when this module is imported: `from tracellm import LLM` would then import torch.
    """
    import numpy
    import torch

    globals().update(np=numpy, Tensor=torch.Tensor)


class LogprobsLists(NamedTuple):
    """Log probabilities on the host: for each of P positions the chosen token's, then those of the K likeliest tokens.

    The chosen token is in column 0 even if it is among the likeliest, too.
    """

    logprob_token_ids: np.ndarray
    """int32 [P, K + 1]."""
    logprobs: np.ndarray
    """float32 [P, K + 1]."""
    sampled_token_ranks: np.ndarray
    """int64 [P]: how many tokens are at least as likely as the chosen one; 1 for the likeliest."""
    cu_num_generated_tokens: None = None
    """For speculative decoding, where a request may get several tokens in a step."""

    def slice(self, start_req_idx: int, end_req_idx: int) -> LogprobsLists:
        """The positions from `start_req_idx` up to, not including, `end_req_idx`."""
        token_ids, logprobs, ranks = (array[start_req_idx:end_req_idx] for array in self[:3])
        return LogprobsLists(token_ids, logprobs, ranks)


class LogprobsTensors(NamedTuple):
    """The same as tensors."""

    logprob_token_ids: Tensor
    """int32 [P, K + 1]."""
    logprobs: Tensor
    """float32 [P, K + 1]."""
    selected_token_ranks: Tensor
    """int64 [P]."""

    def tolists(self) -> LogprobsLists:
        """Bring them to the host."""
        token_ids, logprobs, ranks = (tensor.cpu().numpy() for tensor in self)
        return LogprobsLists(token_ids, logprobs, ranks)

    def to_cpu_nonblocking(self) -> LogprobsTensors:
        """Send them to the host, without waiting until they are there."""
        return LogprobsTensors(*(tensor.to("cpu", non_blocking=True) for tensor in self))

    @staticmethod
    def empty_cpu(num_positions: int, num_tokens_per_position: int) -> LogprobsTensors:
        """On the host, yet to be filled: `num_tokens_per_position` is K + 1."""
        import torch

        shape = (num_positions, num_tokens_per_position)
        return LogprobsTensors(
            torch.empty(shape, dtype=torch.int32),
            torch.empty(shape, dtype=torch.float32),
            torch.empty(num_positions, dtype=torch.int64),
        )


@dataclass
class SamplerOutput:
    """The sampler's result, still on the device."""

    sampled_token_ids: Tensor
    """int64 [N, 1]: one token for each row of the logits; -1 for a row in which every token is forbidden."""
    logprobs_tensors: LogprobsTensors | None
    """N positions; None if no row asked for log probabilities."""


@dataclass
class ModelRunnerOutput:
    """A step's result; the requests are in the order of the persistent batch, which need not be the scheduler's."""

    req_ids: list[str]
    req_id_to_index: dict[str, int]
    """Where each request is in `req_ids`."""
    sampled_token_ids: list[list[int]]
    """For each request its new token; none while its prompt is not complete."""
    logprobs: LogprobsLists | None
    """Position i is that of the new token of `req_ids[i]`, with as many likeliest tokens as the request that asked for
    the most. None if no request asked."""
    prompt_logprobs_dict: dict[str, LogprobsTensors]
    """For requests that asked and whose prompt this step completed: a position for each prompt token but the first."""
    logits_shape: tuple[int, int]
    """Requests, vocabulary."""
    errors: dict[str, str] = field(default_factory=dict)
    """Requests for which no token could be sampled, and why: they cannot go on."""


class AsyncModelRunnerOutput(ABC):
    """A step's result that may still be on its way to the host. vLLM: vllm/v1/outputs.py::AsyncModelRunnerOutput."""

    @abstractmethod
    def get_output(self) -> ModelRunnerOutput:
        """Wait until it is there."""


EMPTY_MODEL_RUNNER_OUTPUT = ModelRunnerOutput(
    req_ids=[], req_id_to_index={}, sampled_token_ids=[], logprobs=None, prompt_logprobs_dict={}, logits_shape=(0, 0)
)
"""The result of a step that scheduled no tokens."""
