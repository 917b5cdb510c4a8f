"""Picks each request's next token from the logits.

In a request's life: the end of a step, `GPUModelRunner._sample` -> `Sampler.forward`. Everything is done in float32
and for all rows at once; rows that are greedy and rows that are random may be mixed.

vLLM: vllm/v1/sample/sampler.py::Sampler and ops/topk_topp_sampler.py. Left out: penalties, min-p, log probabilities.
"""

import torch
from torch import Tensor, nn

from tracellm.engine.model_runner_output import SamplerOutput
from tracellm.engine.sample.metadata import SamplingMetadata

__all__ = ["Sampler", "apply_top_k_top_p", "random_sample"]


class Sampler(nn.Module):
    """Greedy or random sampling, row by row as `SamplingMetadata` asks."""

    def __init__(self, generator: torch.Generator) -> None:
        """`generator` is what the rows without a seed of their own share."""
        super().__init__()
        self.generator = generator

    def forward(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> SamplerOutput:
        """Logits [N, vocabulary] of any float dtype, left unchanged, to one token for each row."""
        logits = logits.float()
        if sampling_metadata.min_tokens:
            logits = self.apply_min_tokens(logits, sampling_metadata)
        return SamplerOutput(self.sample(logits, sampling_metadata)[:, None])

    def sample(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> Tensor:
        """float32 logits [N, vocabulary] to token ids int64 [N]."""
        if sampling_metadata.temperature is None:
            return self.greedy_sample(logits)
        scaled = self.apply_temperature(logits, sampling_metadata.temperature)
        kept = apply_top_k_top_p(scaled, sampling_metadata.top_k, sampling_metadata.top_p)
        sampled = random_sample(kept.softmax(dim=-1), sampling_metadata.generators, self.generator)
        if sampling_metadata.all_random:
            return sampled
        return torch.where(sampling_metadata.temperature == 0, self.greedy_sample(logits), sampled)

    def greedy_sample(self, logits: Tensor) -> Tensor:
        """The likeliest token of each row, int64 [N]; of several that are equal, the first."""
        return logits.argmax(dim=-1)

    def apply_temperature(self, logits: Tensor, temperature: Tensor) -> Tensor:
        """Logits divided by the temperature [N] of their row; greedy rows stay as they are."""
        return logits / torch.where(temperature == 0, 1.0, temperature)[:, None]

    def apply_min_tokens(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> Tensor:
        """Forbid the stop tokens of the rows that have not generated their least number of tokens yet."""
        logits = logits.clone()
        for row, (min_tokens, stop_token_ids) in sampling_metadata.min_tokens.items():
            if len(sampling_metadata.output_token_ids[row]) < min_tokens:
                logits[row, list(stop_token_ids)] = -torch.inf
        return logits


def apply_top_k_top_p(logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    """Logits [N, vocabulary] with those that are not among the likeliest set to minus infinity.

    First top-k: what is below the k-th largest goes; tokens equal to it stay, so more than k can. Then top-p, on the
    probabilities that are left: the fewest likeliest tokens that together reach p stay; always at least one.
    """
    if top_k is None and top_p is None:
        return logits
    ordered, token_ids = logits.sort(dim=-1)  # ascending: the likeliest last
    if top_k is not None:
        smallest_kept = ordered.gather(1, (ordered.shape[1] - top_k)[:, None])
        ordered = ordered.masked_fill(ordered < smallest_kept, -torch.inf)
    if top_p is not None:
        below = ordered.softmax(dim=-1).cumsum(dim=-1)  # the probability of a token and all less likely ones
        drop = below <= 1 - top_p[:, None]
        drop[:, -1] = False
        ordered = ordered.masked_fill(drop, -torch.inf)
    return torch.empty_like(logits).scatter_(dim=-1, index=token_ids, src=ordered)


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
    return (probs / noise).argmax(dim=-1)
