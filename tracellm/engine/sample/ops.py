"""The sampler's operations, as functions of tensors: log probabilities, bad words, penalties, top-k, top-p, the draw.

In a request's life: the end of each step, in `Sampler.forward`. On the CPU, NumPy finds maxima and sorts: it uses
vector instructions (x86 and ARM). In one thread, it finds the maxima of 16 rows of 151,936 numbers in 0.2 ms instead of
PyTorch's 5.2 ms, and sorts them in 23 ms instead of 237 ms.

vLLM: vllm/v1/sample/ops/ (logprobs.py, bad_words.py, penalties.py, topk_topp_sampler.py). Left out: draft tokens,
FlashInfer, compiled kernels.
"""

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.worker.cpu_gpu_buffer import async_tensor_h2d
from tracellm.engine.worker.model_runner_output import LogprobsTensors

__all__ = [
    "apply_all_penalties",
    "apply_bad_words",
    "apply_top_k_only",
    "apply_top_k_top_p",
    "argmax",
    "batched_count_greater_than",
    "compute_logprobs",
    "gather_logprobs",
    "random_sample",
    "sort_values",
]


# -- log probabilities ------------------------------------------------------------------------------------------------
def compute_logprobs(logits: Tensor) -> Tensor:
    """Return log probabilities, float32, of logits [P, vocabulary] of any float dtype."""
    return logits.log_softmax(dim=-1, dtype=torch.float32)


def gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
    """Gather the log probabilities of each position's chosen token and of its most likely tokens.

    Args:
        logprobs: float32 [P, vocabulary].
        num_logprobs: K, the number of most likely tokens; at most the vocabulary's size.
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
    """Count the elements of each row of x [P, V] that are at least values [P, 1]; int64 [P]. The name is vLLM's."""
    return (x >= values).sum(-1)


# -- bad words and penalties ------------------------------------------------------------------------------------------
def apply_bad_words(
    logits: Tensor, bad_words_token_ids: dict[int, list[list[int]]], past_token_ids: list[list[int]]
) -> None:
    """Mask the tokens that would complete a bad word, in place.

    Args:
        logits: float32 [N, vocabulary].
        bad_words_token_ids: forbidden token sequences by row, none of them empty. They may contain tokens that the
            tokenizer has and the model does not.
        past_token_ids: output tokens of each row so far. The prompt does not count.
    """
    for row, bad_words in bad_words_token_ids.items():
        token_ids = past_token_ids[row]
        for *beginning, last in bad_words:
            if token_ids[len(token_ids) - len(beginning) :] == beginning and last < logits.shape[1]:
                logits[row, last] = -torch.inf


def apply_all_penalties(
    logits: Tensor,
    prompt_token_ids: Tensor,
    presence_penalties: Tensor,
    frequency_penalties: Tensor,
    repetition_penalties: Tensor,
    output_token_ids: list[list[int]],
) -> Tensor:
    """Apply the three penalties to tokens that were used before, in this order, in place.

    - Repetition (Keskar et al., 2019): divide the positive logits of tokens in prompt or output by the penalty, and
      multiply the others by it.
    - Frequency (OpenAI's): lower the logit of an output token by the penalty once for each occurrence.
    - Presence (OpenAI's): lower the logit of an output token by the penalty once.

    Args:
        logits: float32 [N, vocabulary].
        prompt_token_ids: int64 [N, longest prompt], padded with the vocabulary's size.
        presence_penalties: float32 [N]; 0 has no effect.
        frequency_penalties: float32 [N]; 0 has no effect.
        repetition_penalties: float32 [N]; 1 has no effect.
        output_token_ids: output tokens of each row so far.
    """
    output_counts = _count_tokens(_pad(output_token_ids, logits), logits)
    output_mask = output_counts > 0
    used = output_mask | (_count_tokens(prompt_token_ids, logits) > 0)

    penalties = torch.where(used, repetition_penalties[:, None], 1.0)
    logits *= torch.where(logits > 0, 1.0 / penalties, penalties)
    logits -= frequency_penalties[:, None] * output_counts
    logits -= presence_penalties[:, None] * output_mask
    return logits


def _count_tokens(token_ids: Tensor, logits: Tensor) -> Tensor:
    """Count each token of the vocabulary in each row, int64 [N, vocabulary]; padding is not counted."""
    num_rows, vocab_size = logits.shape
    counts = torch.zeros(num_rows, vocab_size + 1, dtype=torch.int64, device=logits.device)
    return counts.scatter_add_(1, token_ids, torch.ones_like(token_ids))[:, :vocab_size]


def _pad(token_ids: list[list[int]], logits: Tensor) -> Tensor:
    """Return the rows as one tensor, int64 [N, longest row], padded with the vocabulary's size, which is no token."""
    padded = np.full((len(token_ids), max(map(len, token_ids), default=0)), logits.shape[1], dtype=np.int64)
    for row, ids in enumerate(token_ids):
        padded[row, : len(ids)] = ids
    return async_tensor_h2d(padded, torch.int64, logits.device)


# -- top-k, top-p and the draw ----------------------------------------------------------------------------------------
def apply_top_k_top_p(logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    """Set the logits [N, vocabulary] of tokens outside top-k and top-p to minus infinity.

    Top-k comes first: logits below the k-th largest are dropped. Ties with it stay, so more than k tokens can stay.
    Top-p then works on the probabilities that are left: the fewest most likely tokens that together reach p stay, and
    always at least one.
    """
    if top_p is None:
        return logits if top_k is None else apply_top_k_only(logits, top_k)
    ascending = sort_values(logits)
    remaining = ascending
    if top_k is not None:
        smallest_kept = ascending.gather(1, (ascending.shape[1] - top_k)[:, None])
        remaining = ascending.masked_fill(ascending < smallest_kept, -torch.inf)
    cumulative = remaining.softmax(dim=-1).cumsum(dim=-1)  # probability of a token and all less likely ones
    drop = cumulative <= 1 - top_p[:, None]
    drop[:, -1] = False
    return _drop_smallest(logits, ascending, drop.sum(dim=-1, keepdim=True))


def _drop_smallest(logits: Tensor, ascending: Tensor, count: Tensor) -> Tensor:
    """Set the `count` [N, 1] smallest logits of each row to minus infinity; among ties, the first are dropped.

    Comparing with the smallest value that stays takes a quarter of the time of sorting the values with their indices.
    """
    smallest_kept = ascending.gather(1, count)
    dropped = logits < smallest_kept
    num_ties_dropped = count - dropped.sum(dim=-1, keepdim=True)
    if num_ties_dropped.any():
        ties = logits == smallest_kept
        dropped |= ties & (ties.cumsum(dim=-1) <= num_ties_dropped)
    return logits.masked_fill(dropped, -torch.inf)


def apply_top_k_only(logits: Tensor, top_k: Tensor) -> Tensor:
    """Apply top-k [N] without top-p, which needs no sorted vocabulary."""
    no_top_k = top_k == logits.shape[1]
    top_k = top_k.masked_fill(no_top_k, 1)
    smallest_kept = logits.topk(int(top_k.max()), dim=-1).values.gather(1, (top_k - 1)[:, None])
    return logits.masked_fill((logits < smallest_kept) & ~no_top_k[:, None], -torch.inf)


def random_sample(probs: Tensor, generators: dict[int, torch.Generator], shared: torch.Generator) -> Tensor:
    """Draw one token per row from probs [N, vocabulary]; int64 [N].

    With one exponential variate E per token, the largest p / E wins with probability p. A row with its own generator
    draws from that alone, so its tokens do not depend on its neighbours in the batch; they are those of vLLM 0.11.1.
    """
    noise = torch.empty_like(probs)
    if len(generators) < len(probs):
        _fill_exponential(noise, shared)
    for row, generator in generators.items():
        noise[row].exponential_(generator=generator)
    return argmax(probs / noise)


def _fill_exponential(noise: Tensor, generator: torch.Generator) -> None:
    """Fill a float32 tensor with exponential variates of mean 1.

    On a CPU, `exponential_` takes five times as long as the logarithms of uniform numbers. They are multiples of 2^-24,
    so tokens with a probability below that are drawn too rarely. None is 0, whose variate would be infinite.
    """
    if noise.device.type == "cpu":
        noise.uniform_(torch.finfo(noise.dtype).tiny, 1.0, generator=generator).log_().neg_()
    else:
        noise.exponential_(generator=generator)


def argmax(x: Tensor) -> Tensor:
    """Return the index of each row's largest number, the first of several; float32 [N, V] to int64 [N].

    NaN counts as the largest.
    """
    if x.device.type == "cpu":
        return torch.from_numpy(x.numpy().argmax(axis=-1))
    return x.argmax(dim=-1)


def sort_values(x: Tensor) -> Tensor:
    """Sort each row in ascending order, NaN last; float32 [N, V]."""
    if x.device.type == "cpu":
        return torch.from_numpy(np.sort(x.numpy(), axis=-1))
    return x.sort(dim=-1).values
