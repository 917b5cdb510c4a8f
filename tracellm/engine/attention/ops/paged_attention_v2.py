r"""Paged attention for decoding, version 2: several programs share the context of a sequence.

**Why.** Version 1 has N * K programs. Two sequences with four key heads are eight programs, for a GPU of a hundred
processors, however long the contexts are. Here P programs share one context, each for PARTITION tokens of it, or for
more where the context is longer than P * PARTITION: more programs than a GPU can run would not help.

**The maths.** Program p attends over its own tokens as version 1 does over all (attention_loop.py). It writes its
maximum score m_p, the sum l_p of exp(s - m_p), and the average o_p = acc_p / l_p. A second, small kernel combines the
averages. With m the maximum of all m_p:

    w_p = l_p * exp(m_p - m)        output = sum of w_p * o_p / sum of w_p

which is the result of version 1, up to rounding.

    context of sequence n   |<-- PARTITION -->|<-- PARTITION -->|<- rest ->|
                                    |                 |              |
    program (n, h, p)          (n, h, 0)         (n, h, 1)      (n, h, 2)     each reads G queries, its keys, its values
                                    |                 |              |
    partial results, float32   o [G, D], m [G], l [G]  for each of them
                                    |                 |              |
                                    +--------+--------+--------------+
                                             v
    program (n, head)             weigh  ->  output [D]                         the second kernel

The second kernel walks over the parts BLOCK_P at a time, and keeps m, the sum of the weights and the sum of w_p * o_p
so far: a sequence can have hundreds of parts, more than the registers of a program hold.

**Memory traffic** is that of version 1 and of the partial results, which are written and read once:
2 * (D + 2) * 4 bytes for each query head and partition. With 512 tokens in a partition, and G = 2 heads in bfloat16,
that is 0.4% of the partition's keys and values.

The number of partitions is the same for all sequences of a launch: that of the longest, or what keeps a GPU busy if
that is less. Programs beyond a sequence's end return at once, and the second kernel skips their results. In a CUDA
graph, launched for the longest possible context, these are most programs.

In a request's life: as version 1, if few sequences have long contexts (backends/triton_attn.py decides). vLLM:
csrc/attention/paged_attention_v2.cu; elsewhere this is called flash-decoding, or split-KV.
"""

import torch
import triton
import triton.language as tl

from tracellm.engine.attention.ops.attention_loop import (
    AttentionCall,
    attend,
    averaged,
    block_rows,
    load_rows,
    store_rows,
)
from tracellm.engine.attention.ops.paged_attention_v1 import CONFIGS, FIXED
from tracellm.engine.model_executor.ops.triton.launch import launch, tuned

__all__ = ["paged_attention_v2"]

_REDUCE_CONFIGS = [
    triton.Config({"BLOCK_P": parts}, num_warps=warps) for parts, warps in [(4, 1), (8, 2), (16, 4), (32, 4)]
]


@triton.jit
def _tokens_per_program(seen, partitions, PARTITION: tl.constexpr):
    """Return how many of the tokens that a sequence sees one program processes."""
    return tl.maximum(PARTITION, tl.cdiv(seen, partitions))


@tuned(CONFIGS, FIXED, key=["GROUP", "HEAD_SIZE", "KV_BLOCK_SIZE", "WINDOW"])
@triton.jit(do_not_specialize=["partitions"])
def paged_attention_v2_kernel(
    averages,  # float32 [N, H, P, D]
    maximums,  # float32 [N, H, P]
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
    seen = tl.minimum(length, WINDOW) if WINDOW > 0 else length
    num_tokens = _tokens_per_program(seen, partitions, PARTITION)
    first = length - seen + partition * num_tokens
    stop = tl.minimum(first + num_tokens, length)
    if first >= stop:
        return

    row = tl.arange(0, BLOCK_G)  # one for each query head of the group
    head = key_head * GROUP + row
    is_row = row < GROUP
    token = tl.load(query_start_loc + sequence).to(tl.int64)  # tokens * query_token_stride can exceed 2^31
    at = query + token * query_token_stride + head * query_head_stride
    q = load_rows(at, is_row, HEAD_SIZE, WIDEN, BLOCK_D)  # [BLOCK_G, BLOCK_D]
    maximum, total, acc = attend(
        q,
        tl.where(is_row, stop - 1, -1),
        first,
        stop,
        key_cache + key_head * cache_head_stride,
        value_cache + key_head * cache_head_stride,
        block_table + sequence * table_stride,
        scale,
        cache_block_stride,
        cache_slot_stride,
        HEAD_SIZE,
        KV_BLOCK_SIZE,
        WINDOW,
        SOFT_CAP,
        WIDEN,
        BLOCK_D,
        BLOCK_N,
    )
    heads = tl.num_programs(1) * GROUP
    index = (number * heads + head) * partitions + partition  # [BLOCK_G]
    store_rows(averages + index * HEAD_SIZE, averaged(acc, total), is_row, HEAD_SIZE, BLOCK_D)
    tl.store(maximums + index, maximum, mask=is_row)
    tl.store(totals + index, total, mask=is_row)


@tuned(_REDUCE_CONFIGS, triton.Config({"BLOCK_P": 2}), key=["HEAD_SIZE"])
@triton.jit(do_not_specialize=["partitions"])
def paged_attention_v2_reduce_kernel(
    output,  # [T, H, D]
    averages,  # float32 [N, H, P, D]
    maximums,  # float32 [N, H, P]
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

    parts = tl.cdiv(seen, _tokens_per_program(seen, partitions, PARTITION))

    dim = tl.arange(0, BLOCK_D)
    maximum = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    acc = tl.full([BLOCK_D], 0.0, tl.float32)
    for start in range(0, parts, BLOCK_P):
        part = start + tl.arange(0, BLOCK_P)
        is_part = part < parts
        index = (number * tl.num_programs(1) + head) * partitions + part
        maxima = tl.load(maximums + index, mask=is_part, other=float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(maxima, 0))
        shrink = tl.exp(maximum - new_maximum)
        weights = tl.load(totals + index, mask=is_part, other=0.0) * tl.exp(maxima - new_maximum)  # [BLOCK_P]
        in_average = is_part[:, None] & (dim < HEAD_SIZE)[None, :]
        average = tl.load(averages + index[:, None] * HEAD_SIZE + dim[None, :], mask=in_average, other=0.0)
        total = total * shrink + tl.sum(weights, 0)
        acc = acc * shrink + tl.sum(weights[:, None] * average, 0)
        maximum = new_maximum

    result = acc / tl.where(total > 0.0, total, 1.0)  # a row without a context has no parts
    token = tl.load(query_start_loc + sequence).to(tl.int64)
    address = output + token * output_token_stride + head * HEAD_SIZE + dim
    tl.store(address, result.to(output.dtype.element_ty), mask=dim < HEAD_SIZE)


def paged_attention_v2(call: AttentionCall) -> None:
    """Compute the attention of `plan.decode_sequences` into their rows of `output`."""
    plan, compiled_for = call.plan, call.constants()
    heads, head_size = call.query.shape[1:]
    rows, device = (len(plan.decode_sequences), heads, plan.partitions), call.query.device
    averages = torch.empty(*rows, head_size, dtype=torch.float32, device=device)
    maximums, totals = torch.empty(2, *rows, dtype=torch.float32, device=device)
    launch(
        paged_attention_v2_kernel,
        (len(plan.decode_sequences), call.impl.num_kv_heads, plan.partitions),
        *(averages, maximums, totals),
        *call.inputs(plan.decode_sequences),
        plan.partitions,
        **compiled_for,
        PARTITION=plan.partition,
        BLOCK_G=block_rows(call.group),
    )
    launch(
        paged_attention_v2_reduce_kernel,
        (len(plan.decode_sequences), heads),
        *(call.output, averages, maximums, totals),
        *(plan.decode_sequences, call.metadata.query_start_loc, call.metadata.seq_lens),
        call.output.stride(0),
        plan.partitions,
        PARTITION=plan.partition,
        **{name: compiled_for[name] for name in ("HEAD_SIZE", "WINDOW", "BLOCK_D")},
    )
