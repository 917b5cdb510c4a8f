"""What a logits processor is: told of every change of the batch, asked in every step to change the logits.

vLLM: vllm/v1/sample/logits_processor/interface.py. There a processor is told which rows were added, removed and moved;
here, which rows there are.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["BatchUpdate", "LogitsProcessor"]


class BatchUpdate(NamedTuple):
    """The batch after requests came, went or moved; row by row."""

    params: list[SamplingParams]
    output_token_ids: list[list[int]]
    """What each row has generated so far; the requests' own lists, which grow."""


class LogitsProcessor(ABC):
    """Changes the logits of the rows that ask for it."""

    @abstractmethod
    def __init__(self, vocab_size: int, device: torch.device) -> None: ...

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Does the likeliest token always stay the likeliest? Then greedy rows can do without."""

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Called before every step; with None while the batch is the same as in the step before."""

    @abstractmethod
    def is_active(self) -> bool:
        """Is there a row to change?"""

    @abstractmethod
    def apply(self, logits: Tensor) -> Tensor:
        """Change float32 logits [N, vocabulary] in place."""
