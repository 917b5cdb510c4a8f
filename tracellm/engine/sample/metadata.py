"""How each row of the logits wants to be sampled: the requests' sampling parameters side by side.

`InputBatch` makes it when requests come, go or move; while the batch stays the same, so does this.

vLLM: vllm/v1/sample/metadata.py::SamplingMetadata. Left out: draft tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tracellm.engine.sample.logits_processor import LogitsProcessors

__all__ = ["SamplingMetadata"]


@dataclass
class SamplingMetadata:
    """N rows; a tensor that would change nothing is None, so that its work is left out."""

    temperature: Tensor | None
    """float32 [N]; 0 marks a greedy row. None: all rows are greedy."""
    all_random: bool
    """No row is greedy."""
    top_p: Tensor | None
    """float32 [N]; 1 keeps all tokens."""
    top_k: Tensor | None
    """int64 [N]; the vocabulary's size keeps all tokens."""
    generators: dict[int, torch.Generator]
    """The generators of the rows that have a seed; the other rows share the sampler's."""
    max_num_logprobs: int | None
    """The most log probabilities that a row wants beside its sampled token's; None: no row wants any."""
    prompt_token_ids: Tensor | None
    """int64 [N, longest prompt], filled up with the vocabulary's size. None: no row has a penalty."""
    frequency_penalties: Tensor | None
    """float32 [N]; 0 changes nothing."""
    presence_penalties: Tensor | None
    """float32 [N]; 0 changes nothing."""
    repetition_penalties: Tensor | None
    """float32 [N]; 1 changes nothing."""
    output_token_ids: list[list[int]]
    """What each row has generated so far; the requests' own lists, which grow."""
    allowed_token_ids_mask: Tensor | None
    """bool [N, vocabulary]: True where a token is forbidden."""
    bad_words_token_ids: dict[int, list[list[int]]]
    """For the rows that have any, the token sequences that must not appear."""
    logitsprocs: LogitsProcessors
    """Minimum tokens, logit bias, min-p."""

    @classmethod
    def for_trial_run(cls, num_rows: int, vocab_size: int, device: torch.device) -> "SamplingMetadata":
        """Rows of which each has a temperature, top-k and top-p: of what many ask for, this takes the most memory."""
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
            logitsprocs=LogitsProcessors(vocab_size, device),
        )

    @property
    def all_greedy(self) -> bool:
        """Every row is greedy."""
        return self.temperature is None

    @property
    def no_penalties(self) -> bool:
        """No row has a presence, frequency or repetition penalty."""
        return self.prompt_token_ids is None
