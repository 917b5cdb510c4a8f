"""The operations in plain PyTorch: the readable reference, for the CPU and for CUDA.

Attention is the only one with a plan. The sequences that decode (one query each) go together in one padded batch; a
sequence with more queries goes by itself. Which slots to read is worked out once a step (`plan_attention`), not once a
layer.

vLLM: vllm/model_executor/layers/layernorm.py, rotary_embedding/, activation.py (their `forward_native`) and
vllm/v1/attention/backends/cpu_attn.py.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from tracellm.engine.ops.interface import AttentionMetadata, Ops

__all__ = ["AttentionPlan", "SequenceGroup", "TorchOps", "plan_attention"]


@dataclass
class SequenceGroup:
    """N sequences with the same number Q of query tokens, whose keys are padded to the same length S."""

    token_rows: slice | Tensor
    """Their query tokens in the flat batch, N * Q of them, sequence after sequence."""
    query_len: int
    """Q."""
    slots: Tensor
    """int64 [N, S]: the cache slot of each key. Past a sequence's end its last slot is repeated: it owns no other."""
    mask: Tensor | None
    """bool [N, 1, Q, S]: may query q see key s? None: every query may see every key."""


AttentionPlan = list[SequenceGroup]
"""How the sequences of a step are worked off."""


@lru_cache(maxsize=1)
def plan_attention(metadata: AttentionMetadata, block_size: int) -> AttentionPlan:
    """Group the sequences of a step, all decoding ones together. Kept for the step, as every layer asks again."""
    starts = [0]
    for length in metadata.query_lens_cpu:
        starts.append(starts[-1] + length)
    decodes = [i for i, length in enumerate(metadata.query_lens_cpu) if length == 1]
    groups = [(decodes, 1)] if decodes else []
    groups += [([i], length) for i, length in enumerate(metadata.query_lens_cpu) if length > 1]
    plan = []
    for sequences, query_len in groups:
        everything = len(sequences) == len(metadata.query_lens_cpu)
        if len(sequences) == 1:
            token_rows: slice | Tensor = slice(starts[sequences[0]], starts[sequences[0] + 1])
        elif everything:
            token_rows = slice(0, starts[-1])
        else:
            token_rows = _to_device([starts[i] for i in sequences], metadata.block_table)
        if everything:
            block_table, seq_lens = metadata.block_table, metadata.seq_lens
        else:
            rows = _to_device(sequences, metadata.block_table)
            block_table, seq_lens = metadata.block_table[rows], metadata.seq_lens[rows]
        longest = max(metadata.seq_lens_cpu[i] for i in sequences)
        shortest = min(metadata.seq_lens_cpu[i] for i in sequences)
        key_positions = torch.arange(longest, device=block_table.device)  # [S]
        owned = torch.minimum(key_positions, seq_lens[:, None] - 1)  # [N, S]
        blocks = block_table.gather(1, torch.div(owned, block_size, rounding_mode="floor"))
        slots = blocks.long() * block_size + owned % block_size
        mask = None
        if query_len > 1 or shortest < longest:
            query_positions = torch.arange(-query_len, 0, device=block_table.device) + seq_lens[:, None]  # [N, Q]
            mask = (key_positions <= query_positions[:, :, None])[:, None]  # [N, 1, Q, S]
        plan.append(SequenceGroup(token_rows, query_len, slots, mask))
    return plan


def _to_device(values: list[int], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.int64).to(like.device, non_blocking=True)


class TorchOps(Ops):
    """`Ops` in plain PyTorch; see `Ops` for what each one computes."""

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.rms_norm`."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
        return (wide * scale).to(x.dtype) * weight

    def fused_add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """See `Ops.fused_add_rms_norm`."""
        residual = x + residual
        return self.rms_norm(residual, weight, epsilon), residual

    def rotary_embedding(
        self, positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Ops.rotary_embedding`."""
        cos, sin = cos_sin_cache[positions][:, None].chunk(2, dim=-1)  # each [T, 1, D/2]
        return _rotate(query, cos, sin), _rotate(key, cos, sin)

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.silu_and_mul`."""
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up

    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `Ops.reshape_and_cache`."""
        key_cache.flatten(0, 1).index_copy_(0, slot_mapping, key)
        value_cache.flatten(0, 1).index_copy_(0, slot_mapping, value)

    def paged_attention(
        self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: AttentionMetadata, scale: float
    ) -> Tensor:
        """See `Ops.paged_attention`."""
        plan = plan_attention(metadata, key_cache.shape[1])
        if len(plan) == 1:
            return _attend(query, key_cache, value_cache, plan[0], scale)
        output = torch.empty_like(query)
        for group in plan:
            output[group.token_rows] = _attend(query[group.token_rows], key_cache, value_cache, group, scale)
        return output


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + D/2]) by its angle. Shapes: x [T, heads, D], cos and sin [T, 1, D/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _attend(query: Tensor, key_cache: Tensor, value_cache: Tensor, group: SequenceGroup, scale: float) -> Tensor:
    """Attention of one group, its query [N * Q, H, D].

    A key head serves H / K query heads. Their queries are laid one after the other along the query axis, so that keys
    and values need not be repeated.
    """
    (num_seqs, num_keys), num_queries = group.slots.shape, group.query_len
    num_kv_heads, head_size = key_cache.shape[2:]
    shared = query.shape[1] // num_kv_heads
    slots = group.slots.flatten()
    # [N, K, S, D]
    key, value = (
        cache.flatten(0, 1).index_select(0, slots).view(num_seqs, num_keys, num_kv_heads, head_size).transpose(1, 2)
        for cache in (key_cache, value_cache)
    )
    # [N * Q, H, D] -> [N, K, shared * Q, D]
    query = query.view(num_seqs, num_queries, num_kv_heads, shared, head_size).permute(0, 2, 3, 1, 4)
    query = query.reshape(num_seqs, num_kv_heads, shared * num_queries, head_size)
    mask = group.mask if num_queries == 1 or group.mask is None else group.mask.repeat(1, 1, shared, 1)
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    output = output.view(num_seqs, num_kv_heads, shared, num_queries, head_size).permute(0, 3, 1, 2, 4)
    return output.reshape(num_seqs * num_queries, num_kv_heads * shared, head_size)
