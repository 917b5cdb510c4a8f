"""Log probabilities of a prompt's own tokens, computed chunk by chunk as the prompt is.

In a request's life: each step of its prefill, in `GPUModelRunner._get_prompt_logprobs_dict`. The hidden state at each
prompt token gives the logits of the next one. Such a request reads nothing from the prefix cache
(`Request.skip_reading_prefix_cache`), since hidden states are not in it.

vLLM: vllm/v1/worker/gpu_model_runner.py::GPUModelRunner._get_prompt_logprobs_dict.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tracellm.engine.sample.ops import compute_logprobs, gather_logprobs
from tracellm.engine.worker.model_runner_output import LogprobsTensors

__all__ = ["InProgressPromptLogprobs"]

_ROWS = 1024
"""Positions that are looked at together: the scores of all tokens for 16,384 of them would be many GiB."""


class InProgressPromptLogprobs:
    """Those of one request, until its prompt is complete.

    They survive steps in which the request pauses, where vLLM 0.11.1 begins anew, and loses what it had. A preempted
    request computes its prompt again, so the same numbers are written again.
    """

    def __init__(self, prompt_token_ids: list[int], num_prompt_logprobs: int) -> None:
        """`num_prompt_logprobs` is how many of the likeliest tokens are wanted at each position."""
        self.prompt_token_ids = torch.tensor(prompt_token_ids)
        self.num_prompt_logprobs = num_prompt_logprobs
        self.tensors = LogprobsTensors.empty_cpu(len(prompt_token_ids) - 1, num_prompt_logprobs + 1)

    def add_chunk(
        self, num_computed_tokens: int, hidden_states: Tensor, compute_logits: Callable[[Tensor], Tensor]
    ) -> bool:
        """Take in a step's tokens of the request.

        Args:
            num_computed_tokens: how many tokens were computed before.
            hidden_states: [tokens in this step, hidden].
            compute_logits: hidden states [P, hidden] to logits [P, vocabulary].

        Returns:
            Are they complete? They are when the last prompt token is computed, which comes with a new token.
        """
        first = num_computed_tokens + 1  # the token that the first hidden state predicts
        token_ids = self.prompt_token_ids[first : first + len(hidden_states)].to(hidden_states.device)
        for start in range(0, len(token_ids), _ROWS):
            some_ids = token_ids[start : start + _ROWS]
            logprobs = compute_logprobs(compute_logits(hidden_states[start : start + len(some_ids)]))
            some = gather_logprobs(logprobs, self.num_prompt_logprobs, some_ids)
            at = num_computed_tokens + start
            for whole, part in zip(self.tensors, some, strict=True):
                whole[at : at + len(some_ids)] = part
        return num_computed_tokens + len(hidden_states) >= len(self.prompt_token_ids)
