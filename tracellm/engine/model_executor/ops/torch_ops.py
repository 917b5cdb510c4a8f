"""The operations in plain PyTorch: the readable reference, for the CPU and for CUDA.

Attention is the only one with a plan. The sequences that decode (one query each) go together in one padded batch; a
sequence with more queries goes by itself. Which slots to read is worked out once a step (`plan_attention`), not once a
layer. With a sliding window, keys that none of a group's queries sees are not read.

vLLM: vllm/model_executor/layers/layernorm.py, rotary_embedding/, activation.py (their `forward_native`) and
vllm/v1/attention/backends/cpu_attn.py.
"""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from tracellm.engine.model_executor.ops.interface import AttentionMetadata, Ops
from tracellm.engine.sample.ops import apply_top_k_top_p

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


def plan_attention(metadata: AttentionMetadata, block_size: int, sliding_window: int | None = None) -> AttentionPlan:
    """Group the sequences of a step, all decoding ones together. Kept for the step, as every layer asks again."""
    if sliding_window not in metadata.plans:
        query_lens = metadata.query_lens_cpu
        decodes = [i for i, length in enumerate(query_lens) if length == 1]
        groups = [decodes] if decodes else []
        groups += [[i] for i, length in enumerate(query_lens) if length > 1]
        metadata.plans[sliding_window] = [_plan_group(metadata, group, block_size, sliding_window) for group in groups]
    plan: AttentionPlan = metadata.plans[sliding_window]
    return plan


def _plan_group(
    metadata: AttentionMetadata, sequences: list[int], block_size: int, sliding_window: int | None
) -> SequenceGroup:
    """Plan N sequences that have the same number Q of queries: which tokens, which slots, who sees what.

    Their keys begin with the first one that the first query sees, and end with the sequence; S is the most of any.
    """
    query_lens, query_len = metadata.query_lens_cpu, metadata.query_lens_cpu[sequences[0]]
    everything = len(sequences) == len(query_lens)
    if everything:
        token_rows: slice | Tensor = slice(0, sum(query_lens))
        block_table, seq_lens = metadata.block_table, metadata.seq_lens
    else:
        ends = list(accumulate(query_lens))
        firsts = [ends[i] - query_len for i in sequences]
        alone = len(sequences) == 1
        token_rows = slice(firsts[0], firsts[0] + query_len) if alone else _to_device(firsts, metadata.block_table)
        rows = _to_device(sequences, metadata.block_table)
        block_table, seq_lens = metadata.block_table[rows], metadata.seq_lens[rows]

    num_keys = [metadata.seq_lens_cpu[i] for i in sequences]
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

    def gemma_rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.gemma_rms_norm`."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
        return (wide * scale * (1.0 + weight.float())).to(x.dtype)

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

    def gelu_tanh_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.gelu_tanh_and_mul`."""
        gate, up = x.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * up

    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `Ops.reshape_and_cache`."""
        key_cache.flatten(0, 1).index_copy_(0, slot_mapping, key)
        value_cache.flatten(0, 1).index_copy_(0, slot_mapping, value)

    def apply_top_k_top_p(self, logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
        """See `Ops.apply_top_k_top_p`."""
        return apply_top_k_top_p(logits, top_k, top_p)

    def paged_attention(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: AttentionMetadata,
        scale: float,
        *,
        sliding_window: int | None = None,
        logits_soft_cap: float | None = None,
    ) -> Tensor:
        """See `Ops.paged_attention`."""
        plan = plan_attention(metadata, key_cache.shape[1], sliding_window)
        if len(plan) == 1:
            return _attend(query, key_cache, value_cache, plan[0], scale, logits_soft_cap)
        output = torch.empty_like(query)
        for group in plan:
            rows = group.token_rows
            output[rows] = _attend(query[rows], key_cache, value_cache, group, scale, logits_soft_cap)
        return output


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + D/2]) by its angle. Shapes: x [T, heads, D], cos and sin [T, 1, D/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _attend(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    group: SequenceGroup,
    scale: float,
    logits_soft_cap: float | None,
) -> Tensor:
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
    if logits_soft_cap is None:
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    else:
        output = _soft_capped_attention(query, key, value, mask, scale, logits_soft_cap)
    output = output.view(num_seqs, num_kv_heads, shared, num_queries, head_size).permute(0, 3, 1, 2, 4)
    return output.reshape(num_seqs * num_queries, num_kv_heads * shared, head_size)


def _soft_capped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, cap: float
) -> Tensor:
    """`F.scaled_dot_product_attention` with the scores bent into (-cap, cap); the softmax in float32."""
    scores = torch.tanh((query @ key.transpose(-1, -2)).float() * (scale / cap)) * cap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).to(value.dtype) @ value
