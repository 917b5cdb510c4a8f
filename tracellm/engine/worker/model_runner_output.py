"""Output of a step, from the model runner to the scheduler: the sampled tokens and their log probabilities.

In a request's life: the end of every step. The sampler makes a `SamplerOutput`, still on the device; the model runner
copies it to the host and makes a `ModelRunnerOutput`.

vLLM: vllm/v1/outputs.py. Left out: draft tokens, KV connectors; added: `logits_shape`, `errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from tracellm.engine.sample.sampling_params import SamplingParams

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
    """Import the types in the annotations below, for a decoder that makes such objects from bytes.

    Importing them with this module would make `from tracellm import LLM` import torch.
    """
    import numpy
    import torch

    globals().update(np=numpy, Tensor=torch.Tensor)


class LogprobsLists(NamedTuple):
    """Log probabilities on the host: at each of P positions, of the chosen token and the K most likely tokens.

    Column 0 is the chosen token, even if it is one of the most likely.
    """

    logprob_token_ids: np.ndarray
    """int32 [P, K + 1]."""
    logprobs: np.ndarray
    """float32 [P, K + 1]."""
    sampled_token_ranks: np.ndarray
    """int64 [P]: number of tokens at least as likely as the chosen one; 1 for the most likely."""
    cu_num_generated_tokens: None = None
    """Always None; vLLM uses it for speculative decoding, which samples several tokens per step."""

    def slice(self, start_req_idx: int, end_req_idx: int) -> LogprobsLists:
        """Return the positions from `start_req_idx` to before `end_req_idx`."""
        token_ids, logprobs, ranks = (array[start_req_idx:end_req_idx] for array in self[:3])
        return LogprobsLists(token_ids, logprobs, ranks)


class LogprobsTensors(NamedTuple):
    """Log probabilities as tensors, on the device or on the host."""

    logprob_token_ids: Tensor
    """int32 [P, K + 1]."""
    logprobs: Tensor
    """float32 [P, K + 1]."""
    selected_token_ranks: Tensor
    """int64 [P]."""

    def tolists(self) -> LogprobsLists:
        """Copy the tensors to the host, as arrays."""
        token_ids, logprobs, ranks = (tensor.cpu().numpy() for tensor in self)
        return LogprobsLists(token_ids, logprobs, ranks)

    def to_cpu_nonblocking(self) -> LogprobsTensors:
        """Start copying the tensors to the host, without waiting."""
        return LogprobsTensors(*(tensor.to("cpu", non_blocking=True) for tensor in self))

    @staticmethod
    def empty_cpu(num_positions: int, num_tokens_per_position: int) -> LogprobsTensors:
        """Return uninitialized tensors on the host; `num_tokens_per_position` is K + 1."""
        import torch

        shape = (num_positions, num_tokens_per_position)
        return LogprobsTensors(
            torch.empty(shape, dtype=torch.int32),
            torch.empty(shape, dtype=torch.float32),
            torch.empty(num_positions, dtype=torch.int64),
        )


@dataclass
class SamplerOutput:
    """Result of the sampler, on the device."""

    sampled_token_ids: Tensor
    """int64 [N, 1]: one token per row of the logits; -1 if every token of the row is masked."""
    logprobs_tensors: LogprobsTensors | None
    """N positions; None if no row requested log probabilities."""


@dataclass
class ModelRunnerOutput:
    """Output of a step; its requests are in the order of the persistent batch, not of the scheduler's plan."""

    req_ids: list[str]
    req_id_to_index: dict[str, int]
    """Index of each request in `req_ids`."""
    sampled_token_ids: list[list[int]]
    """New token of each request; empty while its prompt is not complete."""
    logprobs: LogprobsLists | None
    """Log probabilities of the new tokens, position i for `req_ids[i]`, with the largest number of most likely tokens
    that any request requested; None if no request requested any."""
    prompt_logprobs_dict: dict[str, LogprobsTensors]
    """Prompt log probabilities, if this step completed the prompt: a position per prompt token but the first."""
    logits_shape: tuple[int, int]
    """Number of requests and vocabulary size."""
    errors: dict[str, str] = field(default_factory=dict)
    """Error messages of requests without a token or a result; these requests end."""
    pooler_output: list[Tensor | None] = field(default_factory=list)
    """Result of pooling for each request, float32, on the host; None while its prompt is not complete. Empty if the
    model generates."""

    def get_logprobs(self, index: int, params: SamplingParams | None) -> LogprobsLists | None:
        """Return the log probabilities of the new token of the request at `index`, if its parameters ask for some."""
        if self.logprobs is None or params is None or params.logprobs is None:
            return None
        return self.logprobs.slice(index, index + 1)


class AsyncModelRunnerOutput(ABC):
    """Output of a step whose tokens may not have been copied to the host yet.

    vLLM: vllm/v1/outputs.py::AsyncModelRunnerOutput.
    """

    @abstractmethod
    def get_output(self) -> ModelRunnerOutput:
        """Return the output, waiting for the tokens if needed."""


EMPTY_MODEL_RUNNER_OUTPUT = ModelRunnerOutput(
    req_ids=[], req_id_to_index={}, sampled_token_ids=[], logprobs=None, prompt_logprobs_dict={}, logits_shape=(0, 0)
)
"""Output of a step without scheduled tokens."""
