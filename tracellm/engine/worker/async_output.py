"""The tokens of a step that nobody waits for yet: on their way from the device to the host.

In a request's life: the end of every step under asynchronous scheduling (sched/async_scheduler.py). The next step
does not need them on the host: where a request's last token belongs there is a placeholder, -1 - row, which says in
which row of the sampled tokens it is, and `InputBuffers.fill_in` puts it into the inputs on the device. When the engine
core asks for the step's output, the tokens take the place of the placeholders on the host, too. That is before the
step after the next is prepared, so a placeholder never stands for anything but a token of the step before.

vLLM: vllm/v1/worker/gpu_model_runner.py::AsyncGPUModelRunnerOutput. There `prev_req_id_to_index` finds the rows, and
the host's tokens stay placeholders.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tracellm.engine.config.errors import EngineError
from tracellm.engine.sample.forbidden import why_no_token
from tracellm.engine.worker.gpu_input_batch import CachedRequestState
from tracellm.engine.worker.model_runner_output import AsyncModelRunnerOutput, LogprobsTensors, ModelRunnerOutput

__all__ = ["AsyncGPUModelRunnerOutput", "StepTensors", "check_is_number", "placeholder"]


def placeholder(row: int) -> int:
    """What stands for the token in this row of those that the last step sampled; negative, unlike every token."""
    return -1 - row


def check_is_number(largest: Tensor, dtype: torch.dtype) -> None:
    """Is the largest of all logits a number? NaN counts as the largest.

    Raises:
        EngineError: it is not, so the tokens mean nothing. vLLM does not check.
    """
    if largest.isnan():
        raise EngineError(
            f"The model computed NaN instead of scores, in {dtype}: on the way a number grew "
            "beyond the dtype's range. Try another dtype (bfloat16 or float32); "
            "if it stays, the checkpoint is damaged."
        )


class StepTensors(NamedTuple):
    """What a step has computed that the host wants to know."""

    sampled_token_ids: Tensor
    """int64 [R, 1]."""
    largest: Tensor
    """Of all logits: a scalar, in the model's dtype."""
    logprobs: LogprobsTensors | None

    def to_cpu_nonblocking(self) -> "StepTensors":
        """Send them to the host, without waiting until they are there."""
        sampled, largest = (tensor.to("cpu", non_blocking=True) for tensor in self[:2])
        return StepTensors(sampled, largest, None if self.logprobs is None else self.logprobs.to_cpu_nonblocking())


class AsyncGPUModelRunnerOutput(AsyncModelRunnerOutput):
    """Sends a step's tokens to the host at once, and waits for them only when it is asked for the output.

    On a GPU they are copied in a stream of their own, so that they do not queue behind the next step. On the CPU they
    are there already.
    """

    def __init__(
        self,
        output: ModelRunnerOutput,
        tensors: StepTensors,
        rows: list[int],
        requests: Sequence[CachedRequestState],
        copy_stream: torch.cuda.Stream | None,
    ) -> None:
        """All but its tokens and their log probabilities is in `output`.

        Args:
            output: to be completed.
            tensors: where the rest is.
            rows: which rows got a token.
            requests: the requests in these rows, the last of whose tokens are placeholders.
            copy_stream: for the copies; None on the CPU.
        """
        self._output, self._rows, self._requests = output, rows, requests
        self._places = [len(request.output_token_ids) - 1 for request in requests]
        self._on_device: StepTensors | None = tensors  # its memory must not be used anew before it is copied
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
        """Wait for the tokens, and put each where its placeholder is; all further calls give the same.

        A request for which every token is forbidden gets none, and an error.

        Raises:
            EngineError: see `check_is_number`.
        """
        if self._is_complete:
            return self._output
        if self._ready is not None:
            self._ready.synchronize()
        sampled_token_ids, largest, logprobs = self._on_host
        self._on_device = None
        check_is_number(largest, largest.dtype)
        tokens: list[int] = sampled_token_ids[:, 0].tolist()
        output = self._output
        output.sampled_token_ids = [[] for _ in output.req_ids]
        for row, request, place in zip(self._rows, self._requests, self._places, strict=True):
            if tokens[row] < 0:
                output.errors[request.req_id] = why_no_token(request.req_id, request.sampling_params)
            else:
                output.sampled_token_ids[row] = [tokens[row]]
            # A token in any case: the request is in the next step already, where penalties count the tokens of all.
            request.output_token_ids[place] = max(tokens[row], 0)
        output.logprobs = None if logprobs is None else logprobs.tolists()
        self._is_complete = True
        return output
