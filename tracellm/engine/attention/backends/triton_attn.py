"""Attention by Triton kernels: each sequence of a step goes to the kernel that suits it.

- A sequence that decodes, with one query, goes to paged attention: `v1`, one program for each sequence and key head, or
  `v2`, whose programs share one context, where `v1` would start too few programs to keep a GPU busy.
- A sequence with more queries, a prompt or a chunk of one, is cut into *tiles* of neighbouring queries; the kernel for
  variable lengths (ops/attention_varlen.py) has a program for each tile and key head.

The builder decides on the host, once per step, from lengths in the host's memory. vLLM:
vllm/v1/attention/backends/triton_attn.py; the choice between v1 and v2 was in vllm/attention/ops/paged_attn.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import triton
from torch import Tensor

from tracellm.engine.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)
from tracellm.engine.attention.ops.attention_loop import AttentionCall
from tracellm.engine.attention.ops.attention_varlen import attention_varlen
from tracellm.engine.attention.ops.paged_attention_v1 import paged_attention_v1
from tracellm.engine.attention.ops.paged_attention_v2 import paged_attention_v2
from tracellm.engine.attention.ops.reshape_and_cache import reshape_and_cache

__all__ = [
    "ENOUGH_PROGRAMS",
    "MOST_PROGRAMS",
    "PARTITION",
    "AttentionPlan",
    "TritonAttentionBackend",
    "TritonAttentionImpl",
    "TritonAttentionMetadata",
    "TritonAttentionMetadataBuilder",
]

PARTITION = 512
"""Minimum number of context tokens that one program of `v2` processes."""

ENOUGH_PROGRAMS = 256
"""Programs that keep a GPU busy: large GPUs have 108 to 148 processors, each of which runs a few."""

MOST_PROGRAMS = 1024
"""Approximate maximum of programs that share the contexts of a step in `v2`. In a CUDA graph, launched for the longest
possible context, most programs have nothing to do, and even returning at once takes time."""

_TILE_ROWS = 64
"""Rows of a tile: its queries times the query heads that share a key head."""


@dataclass(eq=False)
class AttentionPlan:
    """Kernels and programs for the sequences of a step, for layers with one sliding window.

    Attributes:
        decode_sequences: int32 [N]: numbers of the sequences with one query, for paged attention.
        tile_table: int32 [tiles, 2]: sequence of each tile, and its first query, for the kernel for variable lengths.
        queries_per_tile: most queries in a tile.
        partition: minimum number of context tokens that each program of `v2` processes.
        partitions: most programs that share a context; 1: `v1`.
    """

    decode_sequences: Tensor
    tile_table: Tensor
    queries_per_tile: int
    partition: int
    partitions: int


@dataclass(eq=False)
class TritonAttentionMetadata(AttentionMetadata):
    """Batch of a step with its plans."""

    plans: dict[int | None, AttentionPlan] = field(default_factory=dict)
    """Plan for each sliding window of the layers."""


class TritonAttentionMetadataBuilder(AttentionMetadataBuilder):
    """Plans the kernels of a step."""

    def build(self, common: CommonAttentionMetadata) -> TritonAttentionMetadata:
        """See `AttentionMetadataBuilder.build`."""
        heads_per_kv_head = self.impls[0].num_heads // self.impls[0].num_kv_heads
        most_queries = max(1, _TILE_ROWS // heads_per_kv_head)  # in a tile
        decodes = [i for i, queries in enumerate(common.query_lens_cpu) if queries == 1]
        longer = [(i, queries) for i, queries in enumerate(common.query_lens_cpu) if queries != 1]
        tiles = [(i, start) for i, queries in longer for start in range(0, queries, most_queries)]
        longest = max((queries for _, queries in longer), default=1)

        device = common.block_table.device
        if tiles:
            decode_sequences = _to_device(decodes, device)
        else:  # all sequences decode
            decode_sequences = torch.arange(len(decodes), dtype=torch.int32, device=device)
        tile_table = _to_device(tiles, device)
        queries_per_tile = min(most_queries, triton.next_power_of_2(longest))

        longest_context = max((common.seq_lens_cpu[i] for i in decodes), default=1)
        if common.max_seq_len is not None:
            longest_context = common.max_seq_len
        programs = len(decodes) * self.impls[0].num_kv_heads
        plans = {}
        for window in {impl.sliding_window for impl in self.impls}:
            partitions = _count_partitions(min(longest_context, window or longest_context), programs)
            plans[window] = AttentionPlan(decode_sequences, tile_table, queries_per_tile, PARTITION, partitions)
        return TritonAttentionMetadata(**vars(common), plans=plans)


def _count_partitions(longest_context: int, programs: int) -> int:
    """Return how many programs share the longest context, given the number of programs without sharing."""
    most = -(-longest_context // PARTITION)
    if most == 1 or programs >= ENOUGH_PROGRAMS:
        return 1
    return min(most, -(-MOST_PROGRAMS // max(1, programs)))


def _to_device(values: Iterable[int | tuple[int, int]], device: torch.device) -> Tensor:
    on_host = torch.tensor(values, dtype=torch.int32)
    if device.type == "cuda":  # pinned memory: the host does not wait for the copy
        return on_host.pin_memory().to(device, non_blocking=True)
    return on_host


class TritonAttentionImpl(AttentionImpl):
    """Attention of one layer in at most three launches: one or two for the decodes, one for the tiles."""

    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `AttentionImpl.reshape_and_cache`."""
        reshape_and_cache(key, value, key_cache, value_cache, slot_mapping)

    def paged_attention(
        self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: TritonAttentionMetadata
    ) -> Tensor:
        """See `AttentionImpl.paged_attention`; query and caches are contiguous in their last dimension."""
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        plan = metadata.plans[self.sliding_window]
        call = AttentionCall(self, output, query, key_cache, value_cache, metadata, plan)
        if len(plan.decode_sequences):
            if plan.partitions == 1:
                paged_attention_v1(call)
            else:
                paged_attention_v2(call)
        if len(plan.tile_table):
            attention_varlen(call)
        return output


class TritonAttentionBackend(AttentionBackend):
    """Attention by Triton kernels."""

    name = "triton"
    impl_cls = TritonAttentionImpl
    builder_cls = TritonAttentionMetadataBuilder
