"""Penalties: tokens that were used before become less (or more) likely.

vLLM: vllm/v1/sample/ops/penalties.py and vllm/model_executor/layers/utils.py::apply_penalties.
"""

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.worker.cpu_gpu_buffer import async_tensor_h2d

__all__ = ["apply_all_penalties"]


def apply_all_penalties(
    logits: Tensor,
    prompt_token_ids: Tensor,
    presence_penalties: Tensor,
    frequency_penalties: Tensor,
    repetition_penalties: Tensor,
    output_token_ids: list[list[int]],
) -> Tensor:
    """Apply the three penalties, in this order, in place.

    - Repetition (Keskar et al., 2019): the logits of tokens in prompt or output are divided by it where they are
      positive and multiplied where not.
    - Frequency and presence (OpenAI's): the logits of tokens in the output are lowered by the first once for each
      occurrence, and by the second once.

    Args:
        logits: float32 [N, vocabulary].
        prompt_token_ids: int64 [N, longest prompt], filled up with the vocabulary's size.
        presence_penalties: float32 [N]; 0 changes nothing.
        frequency_penalties: float32 [N]; 0 changes nothing.
        repetition_penalties: float32 [N]; 1 changes nothing.
        output_token_ids: what each row has generated so far.
    """
    output_counts = _count_tokens(_to_tensor(output_token_ids, logits), logits)
    output_mask = output_counts > 0
    used = output_mask | (_count_tokens(prompt_token_ids, logits) > 0)

    penalties = torch.where(used, repetition_penalties[:, None], 1.0)
    logits *= torch.where(logits > 0, 1.0 / penalties, penalties)
    logits -= frequency_penalties[:, None] * output_counts
    logits -= presence_penalties[:, None] * output_mask
    return logits


def _count_tokens(token_ids: Tensor, logits: Tensor) -> Tensor:
    """How often each token of the vocabulary is in each row, int64 [N, vocabulary]; fillers are not counted."""
    num_rows, vocab_size = logits.shape
    counts = torch.zeros(num_rows, vocab_size + 1, dtype=torch.int64, device=logits.device)
    return counts.scatter_add_(1, token_ids, torch.ones_like(token_ids))[:, :vocab_size]


def _to_tensor(token_ids: list[list[int]], logits: Tensor) -> Tensor:
    """int64 [N, longest row], filled up with the vocabulary's size, which is no token's id."""
    padded = np.full((len(token_ids), max(map(len, token_ids), default=0)), logits.shape[1], dtype=np.int64)
    for row, ids in enumerate(token_ids):
        padded[row, : len(ids)] = ids
    return async_tensor_h2d(padded, torch.int64, logits.device)
