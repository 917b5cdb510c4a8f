"""Copying of the sampled tokens from the device to the host, at once or while the next step runs.

In a request's life: the end of every step. Under asynchronous scheduling (core/sched/async_scheduler.py) the next step
does not wait for the tokens. In place of a request's last token the host has a placeholder, -1 - row, for its row
among the sampled tokens. `GPUModelRunner._prepare_input_ids` replaces the placeholder on the device. When the
engine core fetches the step's output, the tokens replace the placeholders on the host, too. This happens before
another step is prepared, so a placeholder always refers to the previous step.

vLLM: vllm/v1/worker/gpu_model_runner.py::AsyncGPUModelRunnerOutput. There `prev_req_id_to_index` finds the rows, and
the host's tokens stay placeholders.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.config.errors import EngineError
from tracellm.engine.worker.cpu_gpu_buffer import CpuGpuBuffer
from tracellm.engine.worker.gpu_input_batch import CachedRequestState
from tracellm.engine.worker.model_runner_output import AsyncModelRunnerOutput, LogprobsTensors, ModelRunnerOutput

__all__ = ["AsyncGPUModelRunnerOutput", "PrevSampledTokens", "StepTensors", "fill_output", "placeholder"]

_MASKING_PARAMS = ("allowed_token_ids", "bad_words", "logit_bias", "min_tokens", "structured_outputs")
"""Sampling parameters that can mask tokens."""


def placeholder(row: int) -> int:
    """Return the placeholder for the token that the last step sampled in this row; negative, unlike any token."""
    return -1 - row


class PrevSampledTokens:
    """Tokens that the previous step sampled, on the device, where they replace placeholders.

    Attributes:
        token_ids: int64 [R, 1], -1 where every token was masked; None before the first step.
    """

    def __init__(self, max_num_reqs: int, device: torch.device) -> None:
        self.token_ids: Tensor | None = None
        self._indices = CpuGpuBuffer(max_num_reqs, dtype=torch.int64, device=device)
        self._rows = CpuGpuBuffer(max_num_reqs, dtype=torch.int64, device=device)

    def replace_placeholders(self, ids_cpu: np.ndarray, input_ids: Tensor) -> None:
        """Replace the placeholders in `input_ids`, int32 [T], whose copy on the host is `ids_cpu`."""
        if self.token_ids is None:
            return
        indices = np.flatnonzero(ids_cpu < 0)
        if count := len(indices):
            self._indices.np[:count] = indices
            self._rows.np[:count] = -1 - ids_cpu[indices]
            tokens = self.token_ids[self._rows.copy_to_gpu(count), 0]
            # A request without a token (-1) has failed, and its results are dropped.
            input_ids[self._indices.copy_to_gpu(count)] = tokens.clamp(min=0).to(torch.int32)


class StepTensors(NamedTuple):
    """Results of a step that the host needs."""

    sampled_token_ids: Tensor
    """int64 [R, 1]."""
    max_logit: Tensor
    """Largest of all logits, a scalar in the model's dtype; NaN if any logit is."""
    logprobs: LogprobsTensors | None

    def to_cpu_nonblocking(self) -> "StepTensors":
        """Start copying the tensors to the host, without waiting."""
        sampled, max_logit = (tensor.to("cpu", non_blocking=True) for tensor in self[:2])
        return StepTensors(sampled, max_logit, None if self.logprobs is None else self.logprobs.to_cpu_nonblocking())


def fill_output(
    output: ModelRunnerOutput, tensors: StepTensors, rows: list[int], requests: Sequence[CachedRequestState]
) -> list[int]:
    """Put a step's tokens and log probabilities into its output, and return the token of every row.

    A request whose parameters mask every token gets an error instead of a token, and its row's token is -1. vLLM does
    not check, and continues with a masked token.

    Args:
        output: output to complete.
        tensors: results of the step, on the host or on the device.
        rows: rows that get a token.
        requests: requests in these rows.

    Raises:
        EngineError: the logits are NaN, so the tokens mean nothing. vLLM does not check.
    """
    if tensors.max_logit.isnan():
        raise EngineError(
            f"The model computed NaN instead of logits, in {tensors.max_logit.dtype}: an intermediate result exceeded "
            "the dtype's range. Try another dtype (bfloat16 or float32); if the error stays, the checkpoint is damaged."
        )
    tokens: list[int] = tensors.sampled_token_ids[:, 0].tolist()
    output.sampled_token_ids = [[] for _ in output.req_ids]
    for row, request in zip(rows, requests, strict=True):
        if tokens[row] >= 0:
            output.sampled_token_ids[row] = [tokens[row]]
        else:
            params = ", ".join(f"`{name}`" for name in _MASKING_PARAMS if getattr(request.sampling_params, name))
            output.errors[request.req_id] = (
                f"Request {request.req_id!r}: no token is left to sample: together, all are forbidden by {params}. "
                "Loosen these parameters."
            )
    output.logprobs = None if tensors.logprobs is None else tensors.logprobs.tolists()
    return tokens


class AsyncGPUModelRunnerOutput(AsyncModelRunnerOutput):
    """Output of a step whose tokens are being copied to the host; made by the model runner, awaited by the executor.

    On a GPU the copies have a stream of their own, so that they do not queue behind the next step. On the CPU there is
    nothing to copy.
    """

    def __init__(
        self,
        output: ModelRunnerOutput,
        tensors: StepTensors,
        rows: list[int],
        requests: Sequence[CachedRequestState],
        copy_stream: torch.cuda.Stream | None,
    ) -> None:
        """Start the copies.

        Args:
            output: output of the step, complete but for the tokens and their log probabilities.
            tensors: results of the step, on the device.
            rows: rows that get a token.
            requests: requests in these rows; the last token of each is a placeholder.
            copy_stream: stream of the copies; None on the CPU.
        """
        self._output, self._rows, self._requests = output, rows, requests
        self._positions = [len(request.output_token_ids) - 1 for request in requests]
        self._on_device: StepTensors | None = tensors  # keeps the memory from being reused before it is copied
        self._ready: torch.cuda.Event | None = None
        self._is_complete = False
        if copy_stream is None:
            self._on_host = tensors
            return
        self._ready = torch.cuda.Event()
        copy_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copy_stream):
            self._on_host = tensors.to_cpu_nonblocking()
            self._ready.record()

    def get_output(self) -> ModelRunnerOutput:
        """Wait for the tokens, replace the placeholders on the host, and return the output, the same on every call.

        Raises:
            EngineError: see `fill_output`.
        """
        if self._is_complete:
            return self._output
        if self._ready is not None:
            self._ready.synchronize()
        self._on_device = None
        tokens = fill_output(self._output, self._on_host, self._rows, self._requests)
        for row, request, position in zip(self._rows, self._requests, self._positions, strict=True):
            # Also without a token: the request is in the next step already, where penalties count its output tokens.
            request.output_token_ids[position] = max(tokens[row], 0)
        self._is_complete = True
        return self._output
