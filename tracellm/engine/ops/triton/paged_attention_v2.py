r"""Paged attention for decoding, version 2: the context of a sequence is split, and the parts brought together after.

**Why.** Version 1 has N * K programs. Two sequences with four key heads are eight programs: eight of a GPU's hundred
processors work, however long the contexts are. Here P programs share one context, each for PARTITION tokens of it.

**The maths.** Program p goes through its own tokens as version 1 does (paged_attention_v1.py) and leaves what it has:
the greatest score m_p, the sum l_p of exp(s - m_p), and the average o_p = acc_p / l_p. A second, small kernel weighs
the averages. With m the greatest of all m_p:

    w_p = l_p * exp(m_p - m)        output = sum of w_p * o_p / sum of w_p

which is what version 1 would have found, up to rounding.

    context of sequence n   |<-- PARTITION -->|<-- PARTITION -->|<- rest ->|
                                    |                 |              |
    program (n, h, p)          (n, h, 0)         (n, h, 1)      (n, h, 2)     each reads G queries, its keys, its values
                                    |                 |              |
    partial results, float32   o [G, D], m [G], l [G]  for each of them
                                    |                 |              |
                                    +--------+--------+--------------+
                                             v
    program (n, head)             weigh  ->  output [D]                         the second kernel

**Memory traffic** is that of version 1, and the partial results, which are written and read once more:
2 * (D + 2) * 4 bytes for each query head and partition. With 512 tokens in a partition, and G = 2 heads in bfloat16,
that is 0.4% of the partition's keys and values.

The number of partitions is the same for all sequences of a launch, that of the longest; programs beyond a sequence's
end return at once, and the second kernel does not read what they would have written.

In a request's life: as version 1, where few sequences have long contexts (attention_plan.py decides). vLLM:
csrc/attention/paged_attention_v2.cu; elsewhere this is called flash-decoding, or split-KV.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.ops.interface import AttentionMetadata
from tracellm.engine.ops.triton.attention_plan import AttentionPlan
from tracellm.engine.ops.triton.attention_work import attention_work
from tracellm.engine.ops.triton.launch import Work, launch, tuned
from tracellm.engine.ops.triton.paged_attention_v1 import CONFIGS, FIXED, block_rows, constants

__all__ = ["paged_attention_v2"]


@tuned(CONFIGS, FIXED, key=["GROUP", "HEAD_SIZE", "KV_BLOCK_SIZE", "WINDOW"])
@triton.jit
def paged_attention_v2_kernel(
    averages,  # float32 [N, H, P, D]
    greatests,  # float32 [N, H, P]
    totals,  # float32 [N, H, P]
    query,  # [T, H, D]
    key_cache,  # [blocks, block_size, K, D]
    value_cache,  # the same
    sequences,  # int32 [N]
    query_start_loc,  # int32 [R + 1]
    seq_lens,  # int32 [R]
    block_table,  # int32 [R, most blocks]
    scale,
    query_token_stride,
    query_head_stride,
    cache_block_stride,
    cache_slot_stride,
    cache_head_stride,
    table_stride,
    partitions,  # P
    PARTITION: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    KV_BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,  # 0: none
    SOFT_CAP: tl.constexpr,  # 0.0: none
    WIDEN: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    number = tl.program_id(0)
    key_head = tl.program_id(1)
    partition = tl.program_id(2)
    sequence = tl.load(sequences + number)
    length = tl.load(seq_lens + sequence)
    first = (tl.maximum(length - WINDOW, 0) if WINDOW > 0 else 0) + partition * PARTITION
    stop = tl.minimum(first + PARTITION, length)
    if first >= stop:
        return

    row = tl.arange(0, BLOCK_G)
    dim = tl.arange(0, BLOCK_D)
    head = key_head * GROUP + row
    in_query = (row < GROUP)[:, None] & (dim < HEAD_SIZE)[None, :]
    token = tl.load(query_start_loc + sequence)
    q = tl.load(
        query + token * query_token_stride + head[:, None] * query_head_stride + dim[None, :], mask=in_query, other=0.0
    )
    if WIDEN:
        q = q.to(tl.float32)

    greatest = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.full([BLOCK_G], 0.0, tl.float32)
    acc = tl.full([BLOCK_G, BLOCK_D], 0.0, tl.float32)
    for start in range(first, stop, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        seen = position < stop
        block = tl.load(block_table + sequence * table_stride + position // KV_BLOCK_SIZE, mask=seen, other=0)
        place = block.to(tl.int64) * cache_block_stride + (position % KV_BLOCK_SIZE) * cache_slot_stride
        place = place[:, None] + key_head * cache_head_stride + dim[None, :]
        in_cache = seen[:, None] & (dim < HEAD_SIZE)[None, :]
        k = tl.load(key_cache + place, mask=in_cache, other=0.0)
        v = tl.load(value_cache + place, mask=in_cache, other=0.0)
        if WIDEN:
            k = k.to(tl.float32)
            v = v.to(tl.float32)

        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BLOCK_G, BLOCK_N]
        if SOFT_CAP > 0.0:
            shrunk = tl.exp(-2.0 * tl.abs(scores) / SOFT_CAP)
            bent = SOFT_CAP * (1.0 - shrunk) / (1.0 + shrunk)
            scores = tl.where(scores < 0.0, -bent, bent)
        scores = tl.where(seen[None, :], scores, float("-inf"))

        now_greatest = tl.maximum(greatest, tl.max(scores, 1))
        shrink = tl.exp(greatest - now_greatest)
        weights = tl.exp(scores - now_greatest[:, None])
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        greatest = now_greatest

    heads = tl.num_programs(1) * GROUP
    place = (number * heads + head) * partitions + partition  # [BLOCK_G]
    tl.store(averages + place[:, None] * HEAD_SIZE + dim[None, :], acc / total[:, None], mask=in_query)
    tl.store(greatests + place, greatest, mask=row < GROUP)
    tl.store(totals + place, total, mask=row < GROUP)


@triton.jit
def paged_attention_v2_reduce_kernel(
    output,  # [T, H, D]
    averages,  # float32 [N, H, P, D]
    greatests,  # float32 [N, H, P]
    totals,  # float32 [N, H, P]
    sequences,  # int32 [N]
    query_start_loc,  # int32 [R + 1]
    seq_lens,  # int32 [R]
    output_token_stride,
    partitions,  # P
    PARTITION: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    number = tl.program_id(0)
    head = tl.program_id(1)
    sequence = tl.load(sequences + number)
    seen = tl.load(seq_lens + sequence)
    if WINDOW > 0:
        seen = tl.minimum(seen, WINDOW)

    part = tl.arange(0, BLOCK_P)
    dim = tl.arange(0, BLOCK_D)
    is_there = part * PARTITION < seen
    place = (number * tl.num_programs(1) + head) * partitions + part
    greatest = tl.load(greatests + place, mask=is_there, other=float("-inf"))
    total = tl.load(totals + place, mask=is_there, other=0.0)
    weight = total * tl.exp(greatest - tl.max(greatest, 0))  # [BLOCK_P]
    in_average = is_there[:, None] & (dim < HEAD_SIZE)[None, :]
    average = tl.load(averages + place[:, None] * HEAD_SIZE + dim[None, :], mask=in_average, other=0.0)
    result = tl.sum(weight[:, None] * average, 0) / tl.sum(weight, 0)  # [BLOCK_D]
    where = output + tl.load(query_start_loc + sequence) * output_token_stride + head * HEAD_SIZE + dim
    tl.store(where, result.to(output.dtype.element_ty), mask=dim < HEAD_SIZE)


def paged_attention_v2(
    output: Tensor,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    metadata: AttentionMetadata,
    plan: AttentionPlan,
    scale: float,
    window: int | None,
    soft_cap: float | None,
) -> None:
    """Attend for the sequences in `plan.decodes`, into their rows of `output` [T, H, D]; see `Ops.paged_attention`."""
    key_heads, head_size = key_cache.shape[2:]
    heads, group, count = query.shape[1], query.shape[1] // key_heads, len(plan.decodes)
    averages = torch.empty(count, heads, plan.partitions, head_size, dtype=torch.float32, device=query.device)
    greatests, totals = torch.empty(2, count, heads, plan.partitions, dtype=torch.float32, device=query.device)
    compiled_for = constants(group, head_size, key_cache.shape[1], window, soft_cap)
    launch(
        paged_attention_v2_kernel,
        (count, key_heads, plan.partitions),
        averages,
        greatests,
        totals,
        query,
        key_cache,
        value_cache,
        plan.decode_sequences,
        metadata.query_start_loc,
        metadata.seq_lens,
        metadata.block_table,
        scale,
        query.stride(0),
        query.stride(1),
        *key_cache.stride()[:3],
        metadata.block_table.stride(0),
        plan.partitions,
        work=lambda: plan.work_of("v2", lambda: _work(plan, query, key_cache, metadata)),
        **compiled_for,
        PARTITION=plan.partition,
        BLOCK_G=block_rows(group),
    )
    launch(
        paged_attention_v2_reduce_kernel,
        (count, heads),
        output,
        averages,
        greatests,
        totals,
        plan.decode_sequences,
        metadata.query_start_loc,
        metadata.seq_lens,
        output.stride(0),
        plan.partitions,
        work=lambda: _reduce_work(len(plan.decode_partitions) * heads, count * heads, head_size, output.element_size()),
        PARTITION=plan.partition,
        HEAD_SIZE=head_size,
        WINDOW=window or 0,
        BLOCK_D=compiled_for["BLOCK_D"],
        BLOCK_P=triton.next_power_of_2(plan.partitions),
    )


def _work(plan: AttentionPlan, query: Tensor, key_cache: Tensor, metadata: AttentionMetadata) -> Work:
    programs = [((number, None, part), reads) for number, part, reads in plan.decode_partitions]
    bytes_per_row = 4 * (query.shape[2] + 2)
    return attention_work(programs, query, key_cache, metadata, reason=plan.reason, bytes_per_row=bytes_per_row)


def _reduce_work(parts: int, rows: int, head_size: int, element_size: int) -> Work:
    return Work(
        bytes_read=parts * 4 * (head_size + 2),
        bytes_written=rows * head_size * element_size,
        flops=2 * parts * head_size,
    )
