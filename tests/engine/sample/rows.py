"""Helpers that make sampling metadata as the model runner does, from requests in an `InputBatch`."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.sampler import Sampler
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.gpu_input_batch import CachedRequestState, InputBatch

__all__ = ["VOCAB", "Row", "fill", "make_batch", "make_request", "metadata", "random_logits", "sample", "sampler"]

VOCAB = 24
CPU = torch.device("cpu")


@dataclass
class Row:
    """A request: its sampling parameters by keyword, prompt, output and bad words as tokens."""

    params: dict[str, Any] = field(default_factory=dict)
    prompt: list[int] = field(default_factory=lambda: [1])
    output: list[int] = field(default_factory=list)
    bad_words: list[list[int]] = field(default_factory=list)


def make_request(req_id: str, row: Row) -> CachedRequestState:
    """Make the model runner's state of the request."""
    params = SamplingParams(**row.params)
    params._bad_words_token_ids = row.bad_words
    seeded = params.seed is not None and params.temperature > 0
    generator = torch.Generator().manual_seed(params.seed) if seeded and params.seed is not None else None
    return CachedRequestState(req_id, row.prompt, params, generator, ([],), 0, list(row.output))


def make_batch(max_num_reqs: int, vocab_size: int = VOCAB) -> InputBatch:
    """Make an empty batch."""
    return InputBatch(max_num_reqs, 64, 64, [16], vocab_size, CPU)


def fill(rows: list[Row], vocab_size: int = VOCAB) -> InputBatch:
    """Make a batch of these requests, in this order, with the ids 0, 1, 2, ..."""
    batch = make_batch(max(len(rows), 1), vocab_size)
    for index, row in enumerate(rows):
        batch.add_request(make_request(str(index), row))
    batch.refresh_metadata()
    return batch


def metadata(rows: list[Row], vocab_size: int = VOCAB) -> SamplingMetadata:
    """Make the sampling metadata of these requests."""
    return fill(rows, vocab_size).sampling_metadata


def sampler(seed: int = 0, logprobs_mode: str = "raw_logprobs") -> Sampler:
    """Make a sampler whose shared generator starts from `seed`."""
    return Sampler(torch.Generator().manual_seed(seed), logprobs_mode)


def sample(logits: Tensor, rows: list[Row], seed: int = 0) -> list[int]:
    """Sample one token per row."""
    output = sampler(seed)(logits, metadata(rows, logits.shape[1])).sampled_token_ids
    assert output.shape == (len(logits), 1)
    tokens: list[int] = output[:, 0].tolist()
    return tokens


def random_logits(rows: int, seed: int = 0) -> Tensor:
    """Make random logits without ties."""
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2
