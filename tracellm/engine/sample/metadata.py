"""How each row of the logits wants to be sampled: the requests' sampling parameters side by side.

vLLM: vllm/v1/sample/metadata.py::SamplingMetadata. Left out: penalties, log probabilities, grammars.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

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
    min_tokens: dict[int, tuple[int, set[int]]]
    """For rows that may not stop yet: the least number of output tokens, and the tokens forbidden until then."""
    output_token_ids: list[list[int]]
    """What each row has generated so far; the requests' own lists, which grow."""

    @property
    def all_greedy(self) -> bool:
        """Every row is greedy."""
        return self.temperature is None
