"""Top-k and top-p: which tokens may be drawn; and the draw.

vLLM: vllm/v1/sample/ops/topk_topp_sampler.py. Left out: FlashInfer, the compiled kernel for CPUs.
"""

import torch
from torch import Tensor

from tracellm.engine.sample.ops.order import argmax, sort_values

__all__ = ["apply_top_k_only", "apply_top_k_top_p", "random_sample"]


def apply_top_k_top_p(logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    """Logits [N, vocabulary] with those that are not among the likeliest set to minus infinity.

    First top-k: what is below the k-th largest goes; tokens equal to it stay, so more than k can. Then top-p, on the
    probabilities that are left: the fewest likeliest tokens that together reach p stay; always at least one.
    """
    if top_p is None:
        return logits if top_k is None else apply_top_k_only(logits, top_k)
    ascending = sort_values(logits)
    ordered = ascending
    if top_k is not None:
        smallest_kept = ascending.gather(1, (ascending.shape[1] - top_k)[:, None])
        ordered = ascending.masked_fill(ascending < smallest_kept, -torch.inf)
    below = ordered.softmax(dim=-1).cumsum(dim=-1)  # the probability of a token and all less likely ones
    drop = below <= 1 - top_p[:, None]
    drop[:, -1] = False
    return _drop_smallest(logits, ascending, drop.sum(dim=-1, keepdim=True))


def _drop_smallest(logits: Tensor, ascending: Tensor, count: Tensor) -> Tensor:
    """Logits with the `count` [N, 1] smallest of each row set to minus infinity; of equal ones the first go first.

    Found by value, so that they need not be sorted together with their places, which takes four times as long.
    """
    smallest_kept = ascending.gather(1, count)
    dropped = logits < smallest_kept
    of_equal_ones = count - dropped.sum(dim=-1, keepdim=True)
    if of_equal_ones.any():
        equal = logits == smallest_kept
        dropped |= equal & (equal.cumsum(dim=-1) <= of_equal_ones)
    return logits.masked_fill(dropped, -torch.inf)


def apply_top_k_only(logits: Tensor, top_k: Tensor) -> Tensor:
    """The same without top-p, for which the vocabulary need not be sorted."""
    everything = top_k == logits.shape[1]
    top_k = top_k.masked_fill(everything, 1)
    smallest_kept = logits.topk(int(top_k.max()), dim=-1).values.gather(1, (top_k - 1)[:, None])
    return logits.masked_fill((logits < smallest_kept) & ~everything[:, None], -torch.inf)


def random_sample(probs: Tensor, generators: dict[int, torch.Generator], shared: torch.Generator) -> Tensor:
    """Draw one token a row from probs [N, vocabulary]; int64 [N].

    With one exponential variate E a token, the largest p / E wins with probability p. A row with its own generator
    draws from that alone, so its tokens do not depend on its neighbours in the batch.
    """
    noise = torch.empty_like(probs)
    if len(generators) < len(probs):
        noise.exponential_(generator=shared)
    for row, generator in generators.items():
        noise[row].exponential_(generator=generator)
    return argmax(probs / noise)
