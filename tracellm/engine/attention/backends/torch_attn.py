"""Attention in plain PyTorch: the readable reference, on a CPU and on a GPU.

The builder groups the sequences of a step: all that decode (one query each) go together in one padded batch, each
sequence with more queries by itself. It also lists the cache slots that each group reads. With a sliding window, keys
before the window are not read.

vLLM's nearest: vllm/v1/attention/backends/cpu_attn.py.
"""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from tracellm.engine.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)

__all__ = [
    "SequenceGroup",
    "TorchAttentionBackend",
    "TorchAttentionImpl",
    "TorchAttentionMetadata",
    "TorchAttentionMetadataBuilder",
]


@dataclass
class SequenceGroup:
    """N sequences with the same number Q of query tokens, whose keys are padded to the same length S."""

    token_rows: slice | Tensor
    """Rows of their N * Q query tokens in the flat batch, sequence after sequence."""
    query_len: int
    """Q."""
    slots: Tensor
    """int64 [N, S]: cache slot of each key; past a sequence's end, its last slot repeated."""
    mask: Tensor | None
    """bool [N, 1, Q, S]: True where query q may see key s; None: every query may see every key."""


@dataclass(eq=False)
class TorchAttentionMetadata(AttentionMetadata):
    """Batch of a step with its groups of sequences."""

    groups: dict[int | None, list[SequenceGroup]] | None = None
    """Groups for each sliding window of the layers."""


class TorchAttentionMetadataBuilder(AttentionMetadataBuilder):
    """Groups the sequences of a step."""

    def build(self, common: CommonAttentionMetadata) -> TorchAttentionMetadata:
        """See `AttentionMetadataBuilder.build`."""
        query_lens = common.query_lens_cpu
        decodes = [i for i, length in enumerate(query_lens) if length == 1]
        sequences = [decodes] if decodes else []
        sequences += [[i] for i, length in enumerate(query_lens) if length > 1]
        groups = {
            window: [_make_group(common, group, self.kv_cache_spec.block_size, window) for group in sequences]
            for window in {impl.sliding_window for impl in self.impls}
        }
        return TorchAttentionMetadata(**vars(common), groups=groups)


def _make_group(
    common: CommonAttentionMetadata, sequences: list[int], block_size: int, sliding_window: int | None
) -> SequenceGroup:
    """Find rows, slots and mask of N sequences that have the same number Q of queries.

    Their keys begin with the first one that the first query sees, and end with the sequence; S is the most of any.
    """
    query_lens, query_len = common.query_lens_cpu, common.query_lens_cpu[sequences[0]]
    if len(sequences) == len(query_lens):
        token_rows: slice | Tensor = slice(0, sum(query_lens))
        block_table, seq_lens = common.block_table, common.seq_lens
    else:
        ends = list(accumulate(query_lens))
        starts = [ends[i] - query_len for i in sequences]
        if len(sequences) == 1:
            token_rows = slice(starts[0], starts[0] + query_len)
        else:
            token_rows = _to_device(starts, common.block_table)
        rows = _to_device(sequences, common.block_table)
        block_table, seq_lens = common.block_table[rows], common.seq_lens[rows]

    num_keys = [common.seq_lens_cpu[i] for i in sequences]
    key_positions = torch.arange(max(num_keys), device=block_table.device)[None]  # [1, S]
    if sliding_window is not None:
        num_keys = [min(length, sliding_window - 1 + query_len) for length in num_keys]
        first_seen = (seq_lens - (sliding_window - 1 + query_len)).clamp(min=0)  # [N]
        key_positions = first_seen[:, None] + key_positions[:, : max(num_keys)]  # [N, S]
    owned = torch.minimum(key_positions, seq_lens[:, None] - 1)  # [N, S]
    blocks = block_table.gather(1, torch.div(owned, block_size, rounding_mode="floor"))
    slots = blocks.long() * block_size + owned % block_size

    mask = None
    if query_len > 1 or min(num_keys) < max(num_keys):
        query_positions = torch.arange(-query_len, 0, device=block_table.device) + seq_lens[:, None]  # [N, Q]
        distance = query_positions[:, :, None] - key_positions[:, None]  # [N, Q, S]
        mask = distance >= 0 if sliding_window is None else (distance >= 0) & (distance < sliding_window)
        mask = mask[:, None]
    return SequenceGroup(token_rows, query_len, slots, mask)


def _to_device(values: list[int], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.int64).to(like.device, non_blocking=True)


class TorchAttentionImpl(AttentionImpl):
    """Attention of one layer, a group of sequences at a time."""

    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `AttentionImpl.reshape_and_cache`."""
        key_cache.flatten(0, 1).index_copy_(0, slot_mapping, key)
        value_cache.flatten(0, 1).index_copy_(0, slot_mapping, value)

    def paged_attention(
        self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: TorchAttentionMetadata
    ) -> Tensor:
        """See `AttentionImpl.paged_attention`."""
        assert metadata.groups is not None
        groups = metadata.groups[self.sliding_window]
        if len(groups) == 1:
            return self._attend(query, key_cache, value_cache, groups[0])
        output = torch.empty_like(query)
        for group in groups:
            rows = group.token_rows
            output[rows] = self._attend(query[rows], key_cache, value_cache, group)
        return output

    def _attend(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, group: SequenceGroup) -> Tensor:
        """Attention of one group, its query [N * Q, H, D].

        The H / K query heads of a key head are laid one after the other along the query axis: keys and values need
        not be repeated.
        """
        (num_seqs, num_keys), num_queries = group.slots.shape, group.query_len
        num_kv_heads, head_size = self.num_kv_heads, self.head_size
        heads_per_kv_head = self.num_heads // num_kv_heads
        slots = group.slots.flatten()
        # [N, K, S, D]
        key, value = (
            cache.flatten(0, 1).index_select(0, slots).view(num_seqs, num_keys, num_kv_heads, head_size).transpose(1, 2)
            for cache in (key_cache, value_cache)
        )
        # [N * Q, H, D] -> [N, K, H / K * Q, D]
        query = query.view(num_seqs, num_queries, num_kv_heads, heads_per_kv_head, head_size).permute(0, 2, 3, 1, 4)
        query = query.reshape(num_seqs, num_kv_heads, heads_per_kv_head * num_queries, head_size)
        mask = group.mask
        if mask is not None and num_queries > 1:
            mask = mask.repeat(1, 1, heads_per_kv_head, 1)
        if self.logits_soft_cap is None:
            output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scale)
        else:
            output = _soft_capped_attention(query, key, value, mask, self.scale, self.logits_soft_cap)
        output = output.view(num_seqs, num_kv_heads, heads_per_kv_head, num_queries, head_size).permute(0, 3, 1, 2, 4)
        return output.reshape(num_seqs * num_queries, num_kv_heads * heads_per_kv_head, head_size)


def _soft_capped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, cap: float
) -> Tensor:
    """`F.scaled_dot_product_attention` with scores bounded to (-cap, cap); the softmax in float32."""
    scores = torch.tanh((query @ key.transpose(-1, -2)).float() * (scale / cap)) * cap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).to(value.dtype) @ value


class TorchAttentionBackend(AttentionBackend):
    """Attention in plain PyTorch."""

    name = "torch"
    impl_cls = TorchAttentionImpl
    builder_cls = TorchAttentionMetadataBuilder
