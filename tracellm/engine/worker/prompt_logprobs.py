"""Log probabilities of prompt tokens, computed chunk by chunk with the prompt.

In a request's life: each step of its prefill, in `GPUModelRunner._get_prompt_logprobs_dict`. The hidden state of each
prompt token gives the logits of the next one. The prefix cache has no hidden states, so such a request does not read
it (`Request.skip_reading_prefix_cache`).

vLLM: vllm/v1/worker/gpu_model_runner.py::GPUModelRunner._get_prompt_logprobs_dict.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.core.sched.output import NewRequestData
from tracellm.engine.sample.ops import compute_logprobs, gather_logprobs
from tracellm.engine.worker.gpu_input_batch import InputBatch
from tracellm.engine.worker.model_runner_output import LogprobsTensors

__all__ = ["InProgressPromptLogprobs", "PromptLogprobs"]

_CHUNK_SIZE = 1024
"""Positions computed together; the logits of all tokens at 16,384 positions would take many GiB."""


class PromptLogprobs:
    """Log probabilities of incomplete prompts, for requests with `prompt_logprobs`; used by `GPUModelRunner`."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.in_progress: dict[str, InProgressPromptLogprobs] = {}

    def add_request(self, new: NewRequestData) -> None:
        """Allocate a new request's, if it requests any; -1 is the whole vocabulary at each position."""
        if new.sampling_params is not None and (num_logprobs := new.sampling_params.prompt_logprobs) is not None:
            num_logprobs = self.vocab_size if num_logprobs == -1 else num_logprobs
            self.in_progress[new.req_id] = InProgressPromptLogprobs(new.prompt_token_ids, num_logprobs)

    def remove_request(self, req_id: str) -> None:
        """Drop the log probabilities of an ended request."""
        self.in_progress.pop(req_id, None)

    def add_step(
        self,
        batch: InputBatch,
        query_start_loc: np.ndarray,
        hidden_states: Tensor,
        compute_logits: Callable[[Tensor], Tensor],
    ) -> dict[str, LogprobsTensors]:
        """Add a step's tokens, and return what is complete, by request.

        Args:
            batch: requests of the step.
            query_start_loc: int32 [R + 1]: first token of each row among the step's tokens.
            hidden_states: [T, hidden].
            compute_logits: maps hidden states [P, hidden] to logits [P, vocabulary].
        """
        complete = {}
        for req_id, prompt_logprobs in list(self.in_progress.items()):
            row = batch.req_id_to_index.get(req_id)
            if row is None:
                continue  # not part of this step
            start, end = query_start_loc[row : row + 2].tolist()
            num_computed_tokens = int(batch.num_computed_tokens_cpu[row])
            if prompt_logprobs.add_chunk(num_computed_tokens, hidden_states[start:end], compute_logits):
                complete[req_id] = self.in_progress.pop(req_id).tensors
        return complete


class InProgressPromptLogprobs:
    """Prompt log probabilities of one request, until its prompt is complete.

    They survive steps in which the request pauses; vLLM 0.11.1 starts over and loses them. A preempted request computes
    its prompt again, and the same numbers are written again.
    """

    def __init__(self, prompt_token_ids: list[int], num_prompt_logprobs: int) -> None:
        """Allocate the result; `num_prompt_logprobs` is the number of most likely tokens per position."""
        self.prompt_token_ids = torch.tensor(prompt_token_ids)
        self.num_prompt_logprobs = num_prompt_logprobs
        self.tensors = LogprobsTensors.empty_cpu(len(prompt_token_ids) - 1, num_prompt_logprobs + 1)

    def add_chunk(
        self, num_computed_tokens: int, hidden_states: Tensor, compute_logits: Callable[[Tensor], Tensor]
    ) -> bool:
        """Add a step's tokens of the request.

        Args:
            num_computed_tokens: number of tokens computed before this step.
            hidden_states: [tokens in this step, hidden].
            compute_logits: maps hidden states [P, hidden] to logits [P, vocabulary].

        Returns:
            True if the last prompt token is computed; the same step samples the first new token.
        """
        first = num_computed_tokens + 1  # the token that the first hidden state predicts
        token_ids = self.prompt_token_ids[first : first + len(hidden_states)].to(hidden_states.device)
        for start in range(0, len(token_ids), _CHUNK_SIZE):
            chunk_ids = token_ids[start : start + _CHUNK_SIZE]
            logprobs = compute_logprobs(compute_logits(hidden_states[start : start + len(chunk_ids)]))
            chunk = gather_logprobs(logprobs, self.num_prompt_logprobs, chunk_ids)
            position = num_computed_tokens + start
            for tensor, part in zip(self.tensors, chunk, strict=True):
                tensor[position : position + len(chunk_ids)] = part
        return num_computed_tokens + len(hidden_states) >= len(self.prompt_token_ids)
