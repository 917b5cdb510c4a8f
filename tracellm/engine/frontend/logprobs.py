"""Log probabilities as the caller sees them: for each position, by token id, how likely and of which rank it was.

The sampler computes them as arrays (`LogprobsLists`, `LogprobsTensors`); the output processor has a `LogprobsProcessor`
for each request, which turns every step's rows into dictionaries, with the tokens' text beside them.

vLLM: vllm/logprobs.py and vllm/v1/engine/logprobs.py. Left out: FlatLogprobs (VLLM_FLAT_LOGPROBS).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    """How likely a token was at one position.

    vLLM: vllm/logprobs.py::Logprob.
    """

    logprob: float
    """The natural logarithm of its probability."""
    rank: int | None = None
    """1 is the likeliest token of the vocabulary."""
    decoded_token: str | None = None
    """The token's text, decoded by itself; `None` under `detokenize=False`."""


LogprobsOnePosition = dict[int, Logprob]
"""By token id: the token that stands there first, then the likeliest ones, likeliest first. That token may be one of
the likeliest; it is there once."""

SampleLogprobs = list[LogprobsOnePosition]
"""One entry for each generated token."""

PromptLogprobs = list[LogprobsOnePosition | None]
"""One entry for each token of the prompt; `None` for the first, which nothing predicted."""


def convert_ids_list_to_tokens(tokenizer: PreTrainedTokenizerFast, token_ids: Iterable[int]) -> list[str]:
    r"""The text of each token by itself.

    So a token that is part of a character is U+FFFD, one that begins with SentencePiece's space sign loses that space
    (a decoder drops the space at the beginning of a text), and a special token is its name.

    vLLM: vllm/transformers_utils/detokenizer_utils.py::convert_ids_list_to_tokens.
    """
    return [tokenizer.decode([token_id]) for token_id in token_ids]


@dataclass
class LogprobsProcessor:
    """Collects one request's log probabilities.

    vLLM: vllm/v1/engine/logprobs.py::LogprobsProcessor.
    """

    tokenizer: PreTrainedTokenizerFast | None
    """`None`: tokens get no text."""
    num_logprobs: int | None
    """How many of the likeliest tokens the request wants for each generated one; -1: all, `None`: no log
    probabilities."""
    num_prompt_logprobs: int | None
    """The same for each token of the prompt."""
    logprobs: SampleLogprobs | None = field(init=False)
    prompt_logprobs: PromptLogprobs | None = field(init=False)
    cumulative_logprob: float | None = field(init=False)
    """The sum over the generated tokens."""

    def __post_init__(self) -> None:
        self.logprobs = None if self.num_logprobs is None else []
        self.cumulative_logprob = None if self.num_logprobs is None else 0.0
        self.prompt_logprobs = None if self.num_prompt_logprobs is None else [None]

    @classmethod
    def from_new_request(
        cls, tokenizer: PreTrainedTokenizerFast | None, request: EngineCoreRequest
    ) -> LogprobsProcessor:
        """The processor for a request; without a tokenizer one whose tokens have no text."""
        params = request.sampling_params
        return cls(tokenizer, params.logprobs, params.prompt_logprobs)

    def update_from_output(self, output: EngineCoreOutput) -> None:
        """Take in what one step brought."""
        if output.new_logprobs is not None:
            self._update_sample_logprobs(output.new_logprobs)
        if output.new_prompt_logprobs_tensors is not None:
            self._update_prompt_logprobs(output.new_prompt_logprobs_tensors)

    def _update_sample_logprobs(self, new: LogprobsLists) -> None:
        """One row for each new token, which stands first in its row."""
        assert self.logprobs is not None
        assert self.num_logprobs is not None
        assert self.cumulative_logprob is not None
        for token_ids, logprobs, rank in zip(
            new.logprob_token_ids.tolist(), new.logprobs.tolist(), new.sampled_token_ranks.tolist(), strict=True
        ):
            self.cumulative_logprob += logprobs[0]
            self.logprobs.append(self._one_position(token_ids, logprobs, rank, self.num_logprobs))

    def _update_prompt_logprobs(self, new: LogprobsTensors) -> None:
        """One row for each token of the prompt from the second on, which stands first in its row."""
        assert self.prompt_logprobs is not None
        assert self.num_prompt_logprobs is not None
        for token_ids, logprobs, rank in zip(
            new.logprob_token_ids.tolist(), new.logprobs.tolist(), new.selected_token_ranks.tolist(), strict=True
        ):
            self.prompt_logprobs.append(self._one_position(token_ids, logprobs, rank, self.num_prompt_logprobs))

    def _one_position(
        self, token_ids: Sequence[int], logprobs: Sequence[float], rank: int, num_logprobs: int
    ) -> LogprobsOnePosition:
        """A row as a dictionary. It may be longer than this request asked for: another one in the batch wanted more."""
        wanted = len(token_ids) if num_logprobs == -1 else num_logprobs + 1
        token_ids = token_ids[:wanted]
        texts: Iterable[str | None] = (
            itertools.repeat(None) if self.tokenizer is None else convert_ids_list_to_tokens(self.tokenizer, token_ids)
        )
        ranks = itertools.chain((rank,), itertools.count(1))
        return {
            token_id: Logprob(logprob, its_rank, text)
            for token_id, logprob, its_rank, text in zip(token_ids, logprobs, ranks, texts, strict=False)
        }

    def pop_prompt_logprobs(self) -> PromptLogprobs | None:
        """The prompt's log probabilities, only once: a streaming caller gets them with the first output."""
        popped = self.prompt_logprobs
        if popped:
            self.prompt_logprobs = []
        return popped
