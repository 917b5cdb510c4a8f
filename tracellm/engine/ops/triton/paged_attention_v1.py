r"""Paged attention for decoding, version 1: one program for each sequence and key head.

**The maths.** A sequence's one query q sees keys k_t and values v_t of its tokens t, n of them:

    s_t = scale * q . k_t        p_t = exp(s_t) / sum of all exp(s)        output = sum of p_t * v_t

The n scores never exist at once. The program walks over the context in tiles of BLOCK_N tokens and keeps three things
up to date, the *online softmax*: the greatest score so far m, the sum l of exp(s - m), and the sum acc of
exp(s - m) * v. A tile with a new greatest score m' shrinks what was there by exp(m - m'). In the end output = acc / l.

**The pages.** Token t of a sequence is in slot t % block_size of block block_table[t // block_size]. So a tile's keys
lie wherever their blocks are, and each of its tokens looks its block up. What the sequence does not own is not read.

**The tiling.** Key head h serves the query heads h * G .. h * G + G - 1 (G = H / K); they make one tile of G rows, so
that each key and value is read once for all of them.

    program (n, h)                                       KV cache of a layer: [blocks, block_size, K, D]
                                                            block 7      block 2      block 9
    query  [G, D] ---+                                     +-----------+------------+------------+
                     |      sequence n: block_table = 7 2 9| . . h . . | . . h . .  | . . h      |
                     v                                     +-----------+------------+------------+
    m, l   [G]    <--+<-- tile [BLOCK_N, D] of keys,   <------ tokens 0 .. BLOCK_N - 1, then the next BLOCK_N, ...
    acc    [G, D] <--+    the same of values
                     |
                     +--> output [G, D]

**Memory traffic** of a launch, in bytes, e for each element (2 in bfloat16); a sequence sees n tokens:

    read      sum over sequences of  K * n * 2 * D * e  (keys, values)  +  H * D * e  (query)  +  K * n * 4  (blocks)
    written   H * D * e for each sequence

and 4 * H * n * D operations: about G operations for each byte, where a GPU could do hundreds meanwhile. So decoding is
as fast as the memory is.

In a request's life: each attention layer of each step in which it decodes (attention.py). vLLM:
csrc/attention/paged_attention_v1.cu, which has a program for each *query* head.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.ops.interface import AttentionMetadata
from tracellm.engine.ops.triton.attention_plan import AttentionPlan
from tracellm.engine.ops.triton.attention_work import attention_work
from tracellm.engine.ops.triton.launch import INTERPRETED, Work, launch, tuned

__all__ = ["CONFIGS", "FIXED", "block_rows", "paged_attention_v1"]

CONFIGS = [
    triton.Config({"BLOCK_N": tokens}, num_warps=warps, num_stages=stages)
    for tokens, warps in [(32, 2), (32, 4), (64, 4), (128, 4), (128, 8)]
    for stages in (2, 3)
]
FIXED = triton.Config({"BLOCK_N": 16})


@tuned(CONFIGS, FIXED, key=["GROUP", "HEAD_SIZE", "KV_BLOCK_SIZE", "WINDOW"])
@triton.jit
def paged_attention_v1_kernel(
    output,  # [T, H, D]
    query,  # [T, H, D]
    key_cache,  # [blocks, block_size, K, D]
    value_cache,  # the same
    sequences,  # int32 [N]: which sequence a program is for
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
    output_token_stride,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    KV_BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,  # 0: none
    SOFT_CAP: tl.constexpr,  # 0.0: none
    WIDEN: tl.constexpr,  # in the interpreter: multiply float32, as its product of bfloat16 is wrong
    BLOCK_G: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    sequence = tl.load(sequences + tl.program_id(0))
    key_head = tl.program_id(1)
    token = tl.load(query_start_loc + sequence)
    length = tl.load(seq_lens + sequence)

    row = tl.arange(0, BLOCK_G)
    dim = tl.arange(0, BLOCK_D)
    head = key_head * GROUP + row
    in_query = (row < GROUP)[:, None] & (dim < HEAD_SIZE)[None, :]  # both are padded to powers of two
    q = tl.load(
        query + token * query_token_stride + head[:, None] * query_head_stride + dim[None, :], mask=in_query, other=0.0
    )
    if WIDEN:
        q = q.to(tl.float32)

    greatest = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.full([BLOCK_G], 0.0, tl.float32)
    acc = tl.full([BLOCK_G, BLOCK_D], 0.0, tl.float32)
    first = tl.maximum(length - WINDOW, 0) if WINDOW > 0 else 0
    for start in range(first, length, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        seen = position < length
        block = tl.load(block_table + sequence * table_stride + position // KV_BLOCK_SIZE, mask=seen, other=0)
        place = block.to(tl.int64) * cache_block_stride + (position % KV_BLOCK_SIZE) * cache_slot_stride
        place = place[:, None] + key_head * cache_head_stride + dim[None, :]  # [BLOCK_N, BLOCK_D]
        in_cache = seen[:, None] & (dim < HEAD_SIZE)[None, :]
        k = tl.load(key_cache + place, mask=in_cache, other=0.0)
        v = tl.load(value_cache + place, mask=in_cache, other=0.0)
        if WIDEN:
            k = k.to(tl.float32)
            v = v.to(tl.float32)

        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BLOCK_G, BLOCK_N]
        if SOFT_CAP > 0.0:  # cap * tanh(scores / cap), from an exponential that cannot overflow
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

    result = acc / tl.where(total > 0.0, total, 1.0)[:, None]  # a row that pads a CUDA graph's batch sees nothing
    where = output + token * output_token_stride + head[:, None] * HEAD_SIZE + dim[None, :]
    tl.store(where, result.to(output.dtype.element_ty), mask=in_query)


def paged_attention_v1(
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
    group = query.shape[1] // key_heads
    launch(
        paged_attention_v1_kernel,
        (len(plan.decodes), key_heads),
        output,
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
        output.stride(0),
        work=lambda: plan.work_of("v1", lambda: _work(plan, query, key_cache, metadata)),
        **constants(group, head_size, key_cache.shape[1], window, soft_cap),
        BLOCK_G=block_rows(group),
    )


def _work(plan: AttentionPlan, query: Tensor, key_cache: Tensor, metadata: AttentionMetadata) -> Work:
    programs = [((number, None), reads) for number, reads in enumerate(plan.decodes)]
    return attention_work(programs, query, key_cache, metadata, reason=plan.reason)


def constants(
    group: int, head_size: int, block_size: int, window: int | None, soft_cap: float | None
) -> dict[str, Any]:
    """What all the attention kernels are compiled for."""
    return {
        "GROUP": group,
        "HEAD_SIZE": head_size,
        "KV_BLOCK_SIZE": block_size,
        "WINDOW": window or 0,
        "SOFT_CAP": soft_cap or 0.0,
        "WIDEN": INTERPRETED,
        "BLOCK_D": max(16, triton.next_power_of_2(head_size)),
    }


def block_rows(rows: int) -> int:
    """So many rows padded to what a matrix unit multiplies: a power of two, at least 16."""
    return max(16, triton.next_power_of_2(rows))
