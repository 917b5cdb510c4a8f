"""Logits processors: changes to the logits that keep state between steps, updated as the batch changes.

In a request's life: `InputBatch.refresh_metadata` updates them before every step, and the sampler applies those that
are active. Operations without state are functions in `ops.py`.

vLLM: vllm/v1/sample/logits_processor/ (interface.py, builtin.py, state.py). Left out: the user's own processors.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.cpu_gpu_buffer import BatchColumn, async_tensor_h2d

__all__ = [
    "BatchUpdate",
    "LogitBiasLogitsProcessor",
    "LogitsProcessor",
    "LogitsProcessors",
    "MinPLogitsProcessor",
    "MinTokensLogitsProcessor",
]

State = TypeVar("State")


class BatchUpdate(NamedTuple):
    """The rows of the batch that changed since the step before.

    vLLM also has `moved`; here a request that moved is added to its new row.
    """

    batch_size: int
    removed: list[int]
    """Rows that are no longer part of the batch."""
    added: list[tuple[int, SamplingParams, list[int]]]
    """Rows with another request than before, its parameters, and its output tokens, a list that grows."""


class LogitsProcessor(ABC):
    """Base class of the logits processors: changes the logits of the rows whose parameters request it."""

    @abstractmethod
    def __init__(self, max_num_reqs: int, vocab_size: int, device: torch.device) -> None: ...

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Return whether the most likely token always stays the same, so that greedy rows can skip the processor."""

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Update the state before a step; None if the batch is the same as in the step before."""

    @abstractmethod
    def is_active(self) -> bool:
        """Return whether any row is affected."""

    @abstractmethod
    def apply(self, logits: Tensor) -> Tensor:
        """Change float32 logits [N, vocabulary] in place."""


class MinPLogitsProcessor(LogitsProcessor):
    """`min_p`: masks tokens less probable than this share of the most likely token's probability."""

    def __init__(self, max_num_reqs: int, vocab_size: int, device: torch.device) -> None:
        self._column = BatchColumn(max_num_reqs, 0.0, torch.float32, device)
        self.min_p: Tensor | None = None
        """float32 [N, 1]; 0 keeps all tokens. None if every row keeps all."""

    def is_argmax_invariant(self) -> bool:
        """Return True: the most likely token stays."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Store the `min_p` of the changed rows."""
        if batch_update is not None:
            for row, params, _ in batch_update.added:
                self._column.set(row, params.min_p)
            min_p = self._column.get(batch_update.batch_size)
            self.min_p = None if min_p is None else min_p[:, None]

    def is_active(self) -> bool:
        """Return whether any row has a `min_p`."""
        return self.min_p is not None

    def apply(self, logits: Tensor) -> Tensor:
        """Mask improbable tokens; the logits have been divided by the temperature."""
        assert self.min_p is not None
        probs = logits.softmax(dim=-1)
        return logits.masked_fill_(probs < self.min_p * probs.amax(dim=-1, keepdim=True), -torch.inf)


class LogitBiasLogitsProcessor(LogitsProcessor):
    """`logit_bias`: adds a number to the logits of some tokens."""

    def __init__(self, max_num_reqs: int, vocab_size: int, device: torch.device) -> None:
        self.device = device
        self.biases: dict[int, dict[int, float]] = {}
        """Bias by token, of the rows that have any."""
        self.logits_slice: tuple[Tensor, Tensor] | None = None
        """Rows and tokens with a bias, int64 [M] each; None if there are none."""
        self.bias_tensor = torch.empty(0)
        """float32 [M]."""

    def is_argmax_invariant(self) -> bool:
        """Return False: a bias can make any token the most likely one."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Rebuild the tensors if a row with biases changed."""
        if process_dict_updates(self.biases, batch_update, lambda params, _: params.logit_bias or None):
            self.logits_slice = _logits_slice(self.biases, self.device)
            numbers = chain.from_iterable(row.values() for row in self.biases.values())
            self.bias_tensor = async_tensor_h2d(np.fromiter(numbers, np.float32), torch.float32, self.device)

    def is_active(self) -> bool:
        """Return whether any row has a bias."""
        return self.logits_slice is not None

    def apply(self, logits: Tensor) -> Tensor:
        """Add the biases."""
        assert self.logits_slice is not None
        logits[self.logits_slice] += self.bias_tensor
        return logits


class MinTokensLogitsProcessor(LogitsProcessor):
    """`min_tokens`: masks the stop tokens of a request until its output has this many tokens."""

    def __init__(self, max_num_reqs: int, vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self.min_toks: dict[int, tuple[int, list[int], set[int]]] = {}
        """`min_tokens`, the output so far and the stop tokens, of the rows that must not stop yet."""
        self.logits_slice: tuple[Tensor, Tensor] | None = None
        """Rows and stop tokens to mask, int64 [M] each; None if there are none."""

    def is_argmax_invariant(self) -> bool:
        """Return False: the most likely token may be a stop token."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Add the changed rows, and drop the rows whose output is long enough."""
        updated = process_dict_updates(self.min_toks, batch_update, self._new_state)
        reached = [row for row, (min_tokens, output, _) in self.min_toks.items() if len(output) >= min_tokens]
        for row in reached:
            del self.min_toks[row]
        if updated or reached:
            self.logits_slice = _logits_slice({row: stop for row, (_, _, stop) in self.min_toks.items()}, self.device)

    def _new_state(self, params: SamplingParams, output: list[int]) -> tuple[int, list[int], set[int]] | None:
        if not params.min_tokens:
            return None
        return params.min_tokens, output, {token for token in params.all_stop_token_ids if token < self.vocab_size}

    def is_active(self) -> bool:
        """Return whether any row must not stop yet."""
        return self.logits_slice is not None

    def apply(self, logits: Tensor) -> Tensor:
        """Mask the stop tokens."""
        assert self.logits_slice is not None
        logits[self.logits_slice] = -torch.inf
        return logits


def process_dict_updates(
    states: dict[int, State],
    batch_update: BatchUpdate | None,
    new_state: Callable[[SamplingParams, list[int]], State | None],
) -> bool:
    """Update the states of the changed rows, and return whether any state changed.

    Args:
        states: states by row, of the rows that have any.
        batch_update: the changed rows, or None.
        new_state: makes a request's state of its parameters and output tokens, or None if it has none.
    """
    if batch_update is None:
        return False
    updated = False
    for row in batch_update.removed:
        updated |= states.pop(row, None) is not None
    for row, params, output_token_ids in batch_update.added:
        updated |= states.pop(row, None) is not None
        if (state := new_state(params, output_token_ids)) is not None:
            states[row] = state
            updated = True
    return updated


def _logits_slice(token_ids: Mapping[int, Collection[int]], device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Return the rows and the tokens of `token_ids`, int64 [M] each; None if there are none."""
    tokens = np.fromiter(chain.from_iterable(token_ids.values()), np.int64)
    if not tokens.size:
        return None
    rows = np.repeat(np.fromiter(token_ids, np.int64), [len(row_token_ids) for row_token_ids in token_ids.values()])
    return async_tensor_h2d(rows, torch.int64, device), async_tensor_h2d(tokens, torch.int64, device)


BUILTIN_LOGITS_PROCESSORS: tuple[type[LogitsProcessor], ...] = (
    MinTokensLogitsProcessor,
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
)


class LogitsProcessors:
    """One logits processor of each class, in vLLM's order; updated by `InputBatch` and used by `Sampler`."""

    def __init__(self, max_num_reqs: int, vocab_size: int, device: torch.device) -> None:
        self.all = [processor(max_num_reqs, vocab_size, device) for processor in BUILTIN_LOGITS_PROCESSORS]

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Update every processor; see `LogitsProcessor.update_state`."""
        for processor in self.all:
            processor.update_state(batch_update)

    @property
    def argmax_invariant(self) -> list[LogitsProcessor]:
        """Active processors that matter to random rows only."""
        return [processor for processor in self.all if processor.is_active() and processor.is_argmax_invariant()]

    @property
    def non_argmax_invariant(self) -> list[LogitsProcessor]:
        """Active processors that can change the token of a greedy row."""
        return [processor for processor in self.all if processor.is_active() and not processor.is_argmax_invariant()]
