"""Log probabilities as callers see them: for each position, a dictionary by token id.

The sampler computes arrays (`LogprobsLists`, `LogprobsTensors`). The `OutputProcessor` has a `LogprobsProcessor` per
request that turns the rows of each step into dictionaries and adds the tokens' text.

vLLM: vllm/logprobs.py and vllm/v1/engine/logprobs.py. Left out: FlatLogprobs (VLLM_FLAT_LOGPROBS).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreRequest
    from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors

__all__ = [
    "Logprob",
    "LogprobsOnePosition",
    "LogprobsProcessor",
    "PromptLogprobs",
    "SampleLogprobs",
    "convert_ids_list_to_tokens",
]


@dataclass
class Logprob:
    """Log probability of a token at one position."""

    logprob: float
    """Natural logarithm of the probability."""
    rank: int | None = None
    """Rank in the vocabulary; 1 is the likeliest token."""
    decoded_token: str | None = None
    """Text of the token decoded by itself; None under `detokenize=False`."""


LogprobsOnePosition = dict[int, Logprob]
"""Log probabilities by token id: the token at this position, then the likeliest tokens in order, each once."""

SampleLogprobs = list[LogprobsOnePosition]
"""One entry per generated token."""

PromptLogprobs = list[LogprobsOnePosition | None]
"""One entry per prompt token; None for the first, which nothing predicts."""


_texts: WeakKeyDictionary[PreTrainedTokenizerFast, dict[int, str]] = WeakKeyDictionary()
"""Texts of single tokens, by tokenizer."""


def convert_ids_list_to_tokens(tokenizer: PreTrainedTokenizerFast, token_ids: Sequence[int]) -> list[str]:
    """Return the text of each token decoded by itself; a text is kept for the next time.

    A part of a character becomes U+FFFD, a leading SentencePiece space is dropped, and a special token is its name.

    vLLM: vllm/transformers_utils/detokenizer_utils.py::convert_ids_list_to_tokens.
    """
    texts = _texts.setdefault(tokenizer, {})
    for token_id in token_ids:
        if token_id not in texts:
            texts[token_id] = tokenizer.decode([token_id])
    return [texts[token_id] for token_id in token_ids]


@dataclass
class LogprobsProcessor:
    """Collector of one request's log probabilities."""

    tokenizer: PreTrainedTokenizerFast | None
    """None gives tokens no text."""
    num_logprobs: int | None
    """Number of likeliest tokens per generated token; -1 is all, None is no log probabilities."""
    num_prompt_logprobs: int | None
    """The same per prompt token."""
    logprobs: SampleLogprobs | None = field(init=False)
    prompt_logprobs: PromptLogprobs | None = field(init=False)
    cumulative_logprob: float | None = field(init=False)
    """Sum over the generated tokens."""

    def __post_init__(self) -> None:
        self.logprobs = None if self.num_logprobs is None else []
        self.cumulative_logprob = None if self.num_logprobs is None else 0.0
        self.prompt_logprobs = None if self.num_prompt_logprobs is None else [None]

    @classmethod
    def from_new_request(
        cls, tokenizer: PreTrainedTokenizerFast | None, request: EngineCoreRequest
    ) -> LogprobsProcessor:
        """Create the processor for a request; without a tokenizer, tokens get no text."""
        params = request.sampling_params
        assert params is not None, "pooling has no log probabilities"
        return cls(tokenizer, params.logprobs, params.prompt_logprobs)

    def update_from_output(self, output: EngineCoreOutput) -> None:
        """Add the log probabilities of one step."""
        if output.new_logprobs is not None:
            self._update_sample_logprobs(output.new_logprobs)
        if output.new_prompt_logprobs_tensors is not None:
            self._update_prompt_logprobs(output.new_prompt_logprobs_tensors)

    def _update_sample_logprobs(self, new: LogprobsLists) -> None:
        """Add one row per new token, which is first in its row."""
        assert self.logprobs is not None
        assert self.num_logprobs is not None
        assert self.cumulative_logprob is not None
        for token_ids, logprobs, rank in zip(
            new.logprob_token_ids.tolist(), new.logprobs.tolist(), new.sampled_token_ranks.tolist(), strict=True
        ):
            self.cumulative_logprob += logprobs[0]
            self.logprobs.append(self._one_position(token_ids, logprobs, rank, self.num_logprobs))

    def _update_prompt_logprobs(self, new: LogprobsTensors) -> None:
        """Add one row per prompt token from the second on, which is first in its row."""
        assert self.prompt_logprobs is not None
        assert self.num_prompt_logprobs is not None
        for token_ids, logprobs, rank in zip(
            new.logprob_token_ids.tolist(), new.logprobs.tolist(), new.selected_token_ranks.tolist(), strict=True
        ):
            self.prompt_logprobs.append(self._one_position(token_ids, logprobs, rank, self.num_prompt_logprobs))

    def _one_position(
        self, token_ids: Sequence[int], logprobs: Sequence[float], rank: int, num_logprobs: int
    ) -> LogprobsOnePosition:
        """Return a row as a dictionary, cut to this request's number: rows are as wide as the batch's largest."""
        if num_logprobs != -1:
            token_ids = token_ids[: num_logprobs + 1]
        texts: Iterable[str | None] = (
            itertools.repeat(None) if self.tokenizer is None else convert_ids_list_to_tokens(self.tokenizer, token_ids)
        )
        ranks = itertools.chain((rank,), itertools.count(1))
        return {
            token_id: Logprob(logprob, token_rank, text)
            for token_id, logprob, token_rank, text in zip(token_ids, logprobs, ranks, texts, strict=False)
        }

    def pop_prompt_logprobs(self) -> PromptLogprobs | None:
        """Return the prompt's log probabilities the first time, then an empty list, for a streaming caller."""
        popped = self.prompt_logprobs
        if popped:
            self.prompt_logprobs = []
        return popped
