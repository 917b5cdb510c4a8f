"""Batches of whole documents as tensors: encoded, sorted by length and padded.

Each document starts at position 0 without others before it, as in use. Documents of similar length share a micro-batch,
which keeps padding small. An optimizer step sums the gradients of several micro-batches.
"""

import random
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from .corpus import documents

__all__ = ["Batch", "batches"]

PROMPT_SHARE = 0.15
"""Share of prompt tokens in the loss: enough to learn the language, without much training on typos."""
PAIR_SHARE = 0.03
"""Share of documents followed by a second one, so that text after an end token makes sense (``ignore_eos``)."""


class Batch(NamedTuple):
    """One micro-batch.

    Attributes:
        input_ids: (rows, length) int64, padded on the right.
        targets: (number learned,) int64, the tokens to predict.
        positions: (number learned,) int64, flat index into (rows * length) of the position that predicts each target.
        num_tokens: tokens without the padding.
    """

    input_ids: torch.Tensor
    targets: torch.Tensor
    positions: torch.Tensor
    num_tokens: int


def batches(tokenizer: Tokenizer, seed: int, documents_per_step: int, tokens_per_batch: int) -> Iterator[list[Batch]]:
    """Yield a list of micro-batches of about `tokens_per_batch` tokens for each optimizer step, without end."""
    rng = random.Random(seed + 1)
    stream = documents(seed)
    while True:
        chosen = list(islice(stream, documents_per_step))
        prompts = tokenizer.encode_batch_fast([d.prompt for d in chosen])
        answers = tokenizer.encode_batch_fast([d.answer + d.end for d in chosen])
        rows = []
        for prompt, answer in zip(prompts, answers, strict=True):
            learned = [rng.random() < PROMPT_SHARE for _ in prompt.ids] + [True] * len(answer.ids)
            rows.append((prompt.ids + answer.ids, learned))
        for _ in range(int(PAIR_SHARE * len(rows))):
            (ids, learned), (more, more_learned) = rows.pop(), rows[0]
            rows[0] = (more + ids, more_learned + learned)
        rows.sort(key=lambda row: len(row[0]))
        step, start = [], 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or (end + 1 - start) * len(rows[end][0]) > tokens_per_batch:
                step.append(_pad(rows[start:end]))
                start = end
        yield step


def _pad(rows: list[tuple[list[int], list[bool]]]) -> Batch:
    length = len(rows[-1][0])
    input_ids = torch.zeros(len(rows), length, dtype=torch.long)
    targets, positions = [], []
    for i, (ids, learned) in enumerate(rows):
        input_ids[i, : len(ids)] = torch.tensor(ids)
        for j in range(1, len(ids)):
            if learned[j]:
                targets.append(ids[j])
                positions.append(i * length + j - 1)
    num_tokens = sum(len(ids) for ids, _ in rows)
    return Batch(input_ids, torch.tensor(targets), torch.tensor(positions), num_tokens)
