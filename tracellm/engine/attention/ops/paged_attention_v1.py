r"""Paged attention for decoding, version 1: one program for each sequence and key head.

**The maths** and the pages are explained in attention_loop.py. A sequence's one query sees all n tokens, or the last
ones with a window.

**The tiling.** Key head h serves the query heads h * G .. h * G + G - 1 (G = H / K); they are one tile of G rows, and
each key and value is read once for all of them.

    query [T, H, D]                                                              output [T, H, D]
      sequence n's token                                                           sequence n's token
      +-----------------+                                                          +-----------------+
      | heads 0 .. G-1  | ---> program (n, 0)  over the keys of key head 0   --->  | heads 0 .. G-1  |
      | heads G .. 2G-1 | ---> program (n, 1)  over the keys of key head 1   --->  | heads G .. 2G-1 |
      +-----------------+                                                          +-----------------+

**Memory traffic** of a launch, in bytes, e for each element (2 in bfloat16); a sequence sees n tokens:

    read      sum over sequences of  K * n * 2 * D * e  (keys, values)  +  H * D * e  (query)  +  K * n * 4  (blocks)
    written   H * D * e for each sequence

with 4 * H * n * D operations: about G operations per byte, where a GPU can do hundreds. Memory bandwidth is the limit
of decoding.

In a request's life: each attention layer of each decode step (backends/triton_attn.py). vLLM:
csrc/attention/paged_attention_v1.cu, which has a program for each *query* head.
"""

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
from tracellm.engine.model_executor.ops.triton.launch import launch, tuned

__all__ = ["CONFIGS", "FIXED", "paged_attention_v1"]

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
    sequences,  # int32 [N]: sequence of each program
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
    WIDEN: tl.constexpr,  # in the interpreter
    BLOCK_G: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    sequence = tl.load(sequences + tl.program_id(0))
    key_head = tl.program_id(1)
    token = tl.load(query_start_loc + sequence).to(tl.int64)  # tokens * query_token_stride can exceed 2^31
    length = tl.load(seq_lens + sequence)

    row = tl.arange(0, BLOCK_G)  # one for each query head of the group
    head = key_head * GROUP + row
    is_row = row < GROUP
    at = query + token * query_token_stride + head * query_head_stride
    q = load_rows(at, is_row, HEAD_SIZE, WIDEN, BLOCK_D)  # [BLOCK_G, BLOCK_D]
    _, total, acc = attend(
        q,
        tl.where(is_row, length - 1, -1),
        tl.maximum(length - WINDOW, 0) if WINDOW > 0 else 0,
        length,
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
    at = output + token * output_token_stride + head * HEAD_SIZE
    store_rows(at, averaged(acc, total), is_row, HEAD_SIZE, BLOCK_D)


def paged_attention_v1(call: AttentionCall) -> None:
    """Compute the attention of `plan.decode_sequences` into their rows of `output`."""
    plan = call.plan
    launch(
        paged_attention_v1_kernel,
        (len(plan.decode_sequences), call.impl.num_kv_heads),
        call.output,
        *call.inputs(plan.decode_sequences),
        call.output.stride(0),
        **call.constants(),
        BLOCK_G=block_rows(call.group),
    )
