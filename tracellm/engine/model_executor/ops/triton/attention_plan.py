"""Which kernel attends for which sequences of a step, and why: worked out on the host, once a step, not once a layer.

- A sequence that decodes, with one query, goes to paged attention: `v1`, one program for each sequence and key head, or
  `v2`, whose programs share one context, where `v1` would start too few programs to keep a GPU busy.
- A sequence with more queries, a prompt or a piece of one, is cut into *tiles* of neighbouring queries; the kernel for
  variable lengths (attention_varlen.py) has a program for each tile and key head.

In a request's life: the first attention layer of each step. vLLM: the choice between v1 and v2 in
vllm/attention/ops/paged_attn.py; vllm/v1/attention/backends/triton_attn.py (`TritonAttentionMetadataBuilder`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tracellm.engine.model_executor.ops.interface import AttentionMetadata
from tracellm.engine.model_executor.ops.triton.launch import Work

__all__ = [
    "ENOUGH_PROGRAMS",
    "MOST_PROGRAMS",
    "PARTITION",
    "AttentionPlan",
    "Reads",
    "Reason",
    "plan_attention",
    "queries_per_tile",
]

PARTITION = 512
"""Tokens of the context that one program of `v2` goes through, at the least."""

ENOUGH_PROGRAMS = 256
"""From so many programs on a GPU is busy: the large ones have 108 to 148 processors, each of which runs a few."""

MOST_PROGRAMS = 1024
"""About so many programs of `v2` share the contexts of a step, and no more: in a CUDA graph, which suits the longest
context there may be, most of them have nothing to do, and even to return at once takes its time."""

_ROWS = 64
"""Rows of a tile: its queries, each with all the query heads that share a key head."""

Reason = Literal["short_context", "enough_programs", "few_programs"]
"""Why `v1` (the first two) or `v2`: no context is longer than a partition; so many sequences and heads that the GPU is
busy without splitting; neither."""


class Reads(NamedTuple):
    """What the programs at one place of the grid read: the keys at positions first .. stop - 1 of one sequence."""

    sequence: int
    first: int
    stop: int
    queries: int
    """How many queries they serve."""
    pairs: int
    """How many pairs of a query and a key it sees there."""


@dataclass(eq=False)
class AttentionPlan:
    """Who attends in a step.

    Attributes:
        decodes: for paged attention: each sequence with one query.
        tiles: for the kernel for variable lengths: each tile of a sequence with more.
        decode_sequences: int32 [decodes]: their numbers.
        tile_table: int32 [tiles, 2]: the sequence of each tile, and which of its queries is the tile's first.
        queries_per_tile: the most queries in a tile.
        partition: how many tokens of a context each program of `v2` goes through, at the least.
        partitions: how many programs share a context, at most; 1: `v1`.
        reason: why so.
    """

    decodes: list[Reads]
    tiles: list[Reads]
    decode_sequences: Tensor
    tile_table: Tensor
    queries_per_tile: int
    partition: int
    partitions: int
    reason: Reason
    _work: dict[str, Work] = field(default_factory=dict)

    def work_of(self, kernel: str, find: Callable[[], Work]) -> Work:
        """What a kernel's launch has to do, found by `find` for the first layer: it is the same for all."""
        if kernel not in self._work:
            self._work[kernel] = find()
        return self._work[kernel]

    def share(self, seen: int) -> int:
        """How many of the tokens that a sequence sees are one program's of `v2`."""
        return max(self.partition, -(-seen // self.partitions))

    @cached_property
    def decode_partitions(self) -> list[tuple[int, int, Reads]]:
        """For `v2`: number of the decode, number of the partition, what its programs read."""
        return [
            (number, partition, Reads(reads.sequence, first, stop, 1, stop - first))
            for number, reads in enumerate(self.decodes)
            for share in [self.share(reads.stop - reads.first)]
            for partition, first in enumerate(range(reads.first, reads.stop, share))
            for stop in [min(first + share, reads.stop)]
        ]


def queries_per_tile(group: int) -> int:
    """How many queries a tile has where each stands in it with `group` heads."""
    return max(1, _ROWS // group)


def plan_attention(metadata: AttentionMetadata, heads: int, key_heads: int, window: int | None) -> AttentionPlan:
    """The plan for the layers with this window (None: they see everything), kept for the step.

    Args:
        metadata: of the step.
        heads: query heads, H.
        key_heads: key/value heads, K.
        window: how many tokens a query sees.
    """
    per_tile = queries_per_tile(heads // key_heads)
    known: AttentionPlan | None = metadata.plans.get(window)
    if known is None or known.queries_per_tile != per_tile:
        known = metadata.plans[window] = _plan(metadata, key_heads, window, per_tile)
    return known


def _plan(metadata: AttentionMetadata, key_heads: int, window: int | None, per_tile: int) -> AttentionPlan:
    decodes, tiles, table = [], [], []
    for sequence, (queries, length) in enumerate(zip(metadata.query_lens_cpu, metadata.seq_lens_cpu, strict=True)):
        if queries == 1:
            first = _first_seen(length - 1, window)
            decodes.append(Reads(sequence, first, length, 1, length - first))
            continue
        for start in range(0, queries, per_tile):
            in_tile = min(per_tile, queries - start)
            position = length - queries + start  # of the tile's first query
            pairs = _pairs_before(position + in_tile, window) - _pairs_before(position, window)
            tiles.append(Reads(sequence, _first_seen(position, window), position + in_tile, in_tile, pairs))
            table.append((sequence, start))
    longest = max((reads.stop - reads.first for reads in decodes), default=1)
    if metadata.max_seq_len is not None:
        longest = min(metadata.max_seq_len, window or metadata.max_seq_len)
    partitions, reason = _partitions(longest, len(decodes) * key_heads)
    device = metadata.block_table.device
    if tiles:
        numbers = _to_device([reads.sequence for reads in decodes], device)
    else:  # all of them
        numbers = torch.arange(len(decodes), dtype=torch.int32, device=device)
    return AttentionPlan(decodes, tiles, numbers, _to_device(table, device), per_tile, PARTITION, partitions, reason)


def _first_seen(position: int, window: int | None) -> int:
    """The first position that a query at this one sees."""
    return 0 if window is None else max(0, position + 1 - window)


def _pairs_before(position: int, window: int | None) -> int:
    """How many keys the queries at all positions before this one see, taken together; without a loop over tokens."""
    growing = position if window is None else min(position, window)  # so many see one key more than the one before
    return growing * (growing + 1) // 2 + (position - growing) * (window or 0)


def _partitions(longest: int, programs: int) -> tuple[int, Reason]:
    """Into how many the longest context is split, and why; there are so many programs if it is not."""
    most = -(-longest // PARTITION)
    if most == 1:
        return 1, "short_context"
    if programs >= ENOUGH_PROGRAMS:
        return 1, "enough_programs"
    return min(most, -(-MOST_PROGRAMS // max(1, programs))), "few_programs"


def _to_device(values: Iterable[int | tuple[int, int]], device: torch.device) -> Tensor:
    on_host = torch.tensor(values, dtype=torch.int32)
    if device.type == "cuda":  # from pinned memory, so that the host does not wait for the copy
        return on_host.pin_memory().to(device, non_blocking=True)
    return on_host
