"""Sampling parameters of the batch, row by row as tensors; the sampler's input besides the logits.

In a request's life: `InputBatch.refresh_metadata` makes it when requests come, end or move, and keeps it while the
batch stays the same.

vLLM: vllm/v1/sample/metadata.py::SamplingMetadata. Left out: draft tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tracellm.engine.sample.logits_processor import LogitsProcessors

__all__ = ["SamplingMetadata"]


@dataclass
class SamplingMetadata:
    """Sampling parameters of N rows. A tensor without effect is None, and the sampler skips its operation."""

    temperature: Tensor | None
    """float32 [N]; 0 for a greedy row. None if all rows are greedy."""
    all_random: bool
    """True if no row is greedy."""
    top_p: Tensor | None
    """float32 [N]; 1 keeps all tokens."""
    top_k: Tensor | None
    """int64 [N]; the vocabulary's size keeps all tokens."""
    generators: dict[int, torch.Generator]
    """Generators of the rows with a seed; the other rows share the sampler's."""
    max_num_logprobs: int | None
    """Largest number of log probabilities requested beside the sampled token's; None if no row requests any."""
    prompt_token_ids: Tensor | None
    """int64 [N, longest prompt], padded with the vocabulary's size; a row without a penalty has padding only.
    None if no row has a penalty."""
    frequency_penalties: Tensor | None
    """float32 [N]; 0 has no effect."""
    presence_penalties: Tensor | None
    """float32 [N]; 0 has no effect."""
    repetition_penalties: Tensor | None
    """float32 [N]; 1 has no effect."""
    output_token_ids: list[list[int]]
    """Output tokens of each row so far; the requests' own lists, which grow."""
    allowed_token_ids_mask: Tensor | None
    """bool [N, vocabulary]; True masks a token."""
    bad_words_token_ids: dict[int, list[list[int]]]
    """Token sequences that must not appear, of the rows that have any."""
    logitsprocs: LogitsProcessors
    """Minimum tokens, logit bias, min-p."""

    @classmethod
    def for_dummy_run(cls, num_rows: int, vocab_size: int, device: torch.device) -> "SamplingMetadata":
        """Give each row a temperature, top-k and top-p: the usual combination that needs the most memory."""
        return cls(
            temperature=torch.full((num_rows,), 0.5, device=device),
            all_random=False,
            top_p=torch.full((num_rows,), 0.9, device=device),
            top_k=torch.full((num_rows,), max(1, vocab_size - 1), device=device),
            generators={},
            max_num_logprobs=None,
            prompt_token_ids=None,
            frequency_penalties=None,
            presence_penalties=None,
            repetition_penalties=None,
            output_token_ids=[[] for _ in range(num_rows)],
            allowed_token_ids_mask=None,
            bad_words_token_ids={},
            logitsprocs=LogitsProcessors(num_rows, vocab_size, device),
        )

    @property
    def all_greedy(self) -> bool:
        """True if all rows are greedy."""
        return self.temperature is None

    @property
    def no_penalties(self) -> bool:
        """True if no row has a presence, frequency or repetition penalty."""
        return self.prompt_token_ids is None
