"""The logits processors of a model runner, in the two places where the sampler calls them.

vLLM: vllm/v1/sample/logits_processor/state.py::LogitsProcessors.
"""

import torch

from tracellm.engine.sample.logits_processor.builtin import (
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from tracellm.engine.sample.logits_processor.interface import BatchUpdate, LogitsProcessor

__all__ = ["LogitsProcessors"]

_BUILTIN: tuple[type[LogitsProcessor], ...] = (MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor)


class LogitsProcessors:
    """One of each kind, in vLLM's order."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.all = [processor(vocab_size, device) for processor in _BUILTIN]

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """See `LogitsProcessor.update_state`."""
        for processor in self.all:
            processor.update_state(batch_update)

    @property
    def argmax_invariant(self) -> list[LogitsProcessor]:
        """Those with something to do that concern random rows only."""
        return [processor for processor in self.all if processor.is_active() and processor.is_argmax_invariant()]

    @property
    def non_argmax_invariant(self) -> list[LogitsProcessor]:
        """Those with something to do that can change what greedy rows take."""
        return [processor for processor in self.all if processor.is_active() and not processor.is_argmax_invariant()]
