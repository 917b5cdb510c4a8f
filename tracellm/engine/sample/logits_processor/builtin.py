"""The logits processors that every engine has: min-p, logit bias, and the least number of tokens.

vLLM: vllm/v1/sample/logits_processor/builtin.py.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from tracellm.engine.sample.logits_processor.interface import BatchUpdate, LogitsProcessor
from tracellm.engine.worker.cpu_gpu_buffer import async_tensor_h2d

__all__ = ["LogitBiasLogitsProcessor", "MinPLogitsProcessor", "MinTokensLogitsProcessor"]


class MinPLogitsProcessor(LogitsProcessor):
    """`min_p`: drops the tokens whose probability is below this share of the likeliest one's."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.device = device
        self.min_p: Tensor | None = None
        """float32 [N, 1]; 0 keeps all tokens. None: no row asks."""

    def is_argmax_invariant(self) -> bool:
        """The likeliest token stays."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Take over the rows' `min_p`."""
        if batch_update is not None:
            min_p = [params.min_p for params in batch_update.params]
            self.min_p = async_tensor_h2d(min_p, torch.float32, self.device)[:, None] if any(min_p) else None

    def is_active(self) -> bool:
        """Does a row have a `min_p`?"""
        return self.min_p is not None

    def apply(self, logits: Tensor) -> Tensor:
        """Compare the probabilities, after the temperature."""
        assert self.min_p is not None
        probs = logits.softmax(dim=-1)
        return logits.masked_fill_(probs < self.min_p * probs.amax(dim=-1, keepdim=True), -torch.inf)


class LogitBiasLogitsProcessor(LogitsProcessor):
    """`logit_bias`: adds a number to the logits of some tokens."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.device = device
        self.positions: tuple[Tensor, Tensor] | None = None
        """Rows and tokens, int64 [M] each; None: no row asks."""
        self.biases = torch.empty(0)
        """float32 [M]."""

    def is_argmax_invariant(self) -> bool:
        """A bias can make any token the likeliest."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Take over the rows' biases."""
        if batch_update is not None:
            biases = [params.logit_bias or {} for params in batch_update.params]
            self.positions = _positions(enumerate(biases), self.device)
            if self.positions is not None:
                numbers = [bias for row in biases for bias in row.values()]
                self.biases = async_tensor_h2d(numbers, torch.float32, self.device)

    def is_active(self) -> bool:
        """Does a row have a bias?"""
        return self.positions is not None

    def apply(self, logits: Tensor) -> Tensor:
        """Add the biases."""
        assert self.positions is not None
        logits[self.positions] += self.biases
        return logits


class MinTokensLogitsProcessor(LogitsProcessor):
    """`min_tokens`: forbids the tokens that would end the request until it has generated so many."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self.min_toks: dict[int, tuple[int, list[int], set[int]]] = {}
        """For the rows that may not stop yet: `min_tokens`, the output so far, the stop tokens."""
        self.positions: tuple[Tensor, Tensor] | None = None
        """Rows and tokens that are forbidden, int64 [M] each."""

    def is_argmax_invariant(self) -> bool:
        """The likeliest token may be one that would end the request."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Take over the rows' numbers, and let go of those that have been reached."""
        if batch_update is not None:
            self.min_toks = {
                row: (params.min_tokens, output, {t for t in params.all_stop_token_ids if t < self.vocab_size})
                for row, (params, output) in enumerate(zip(*batch_update, strict=True))
                if params.min_tokens
            }
        reached = [row for row, (min_tokens, output, _) in self.min_toks.items() if len(output) >= min_tokens]
        for row in reached:
            del self.min_toks[row]
        if reached or batch_update is not None:
            self.positions = _positions(((row, stop) for row, (_, _, stop) in self.min_toks.items()), self.device)

    def is_active(self) -> bool:
        """Is a row not allowed to stop?"""
        return self.positions is not None

    def apply(self, logits: Tensor) -> Tensor:
        """Forbid the stop tokens."""
        assert self.positions is not None
        logits[self.positions] = -torch.inf
        return logits


def _positions(
    token_ids_of_rows: Iterable[tuple[int, Iterable[int]]], device: torch.device
) -> tuple[Tensor, Tensor] | None:
    """Where in the logits these rows' tokens are: two int64 [M]; None if there are no tokens."""
    pairs = [(row, token_id) for row, token_ids in token_ids_of_rows for token_id in token_ids]
    if not pairs:
        return None
    rows, tokens = async_tensor_h2d(pairs, torch.int64, device).unbind(dim=1)
    return rows, tokens
