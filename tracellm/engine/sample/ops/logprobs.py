"""Log probabilities: of all tokens, and of those that are reported, with the rank of the chosen one.

vLLM: vllm/v1/sample/sampler.py::Sampler.compute_logprobs, gather_logprobs, and ops/logprobs.py.
"""

import torch
from torch import Tensor

from tracellm.engine.worker.model_runner_output import LogprobsTensors

__all__ = ["batched_count_greater_than", "compute_logprobs", "gather_logprobs"]


def compute_logprobs(logits: Tensor) -> Tensor:
    """Logits [P, vocabulary] of any float dtype to log probabilities, float32."""
    return logits.log_softmax(dim=-1, dtype=torch.float32)


def gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
    """Pick the chosen token of each position, and the `num_logprobs` likeliest.

    Args:
        logprobs: float32 [P, vocabulary].
        num_logprobs: K, at most the vocabulary's size.
        token_ids: int64 [P], the sampled tokens, or a prompt's.
    """
    top_logprobs, top_ids = logprobs.topk(num_logprobs, dim=-1)
    chosen_ids = token_ids[:, None]
    chosen_logprobs = logprobs.gather(-1, chosen_ids)
    return LogprobsTensors(
        torch.cat((chosen_ids, top_ids), dim=1).to(torch.int32),
        torch.cat((chosen_logprobs, top_logprobs), dim=1),
        batched_count_greater_than(logprobs, chosen_logprobs),
    )


def batched_count_greater_than(x: Tensor, values: Tensor) -> Tensor:
    """For each row of x [P, V] how many elements are at least values [P, 1]; int64 [P]. The name is vLLM's."""
    return (x >= values).sum(-1)
