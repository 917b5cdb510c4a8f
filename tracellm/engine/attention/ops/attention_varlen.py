r"""Attention for sequences with several queries in a step: prompts, chunks of prompts, prompts with a cached prefix.

**The maths** is that of attention_loop.py, for many queries at a time. The query at position p sees the keys at
positions 0 .. p, or p - w + 1 .. p with a window w. This step's keys are in the cache already: whole prompts, and
chunks after a prefix, are one case.

**The tiling.** A sequence's queries are cut into tiles of neighbours. A row of a tile is one head of one query. The G
query heads that share a key head are in the same tile: each key is read once for G * queries rows:

    row r of the tile:  query r // G,  head h * G + r % G               (here G = 2, a tile of 4 queries)

                      keys of the sequence, positions 0 ..
                      |<--- prefix --->|<- this step's chunk ->|
    program (t, h)     BLOCK_N   BLOCK_N   BLOCK_N
    query 0, head 0   [ x x x x | x x x x | x . . . ]           x: multiplied and counted
          0       1   [ x x x x | x x x x | x . . . ]           .: multiplied, then hidden (score minus infinity)
          1       0   [ x x x x | x x x x | x x . . ]
          1       1   [ x x x x | x x x x | x x . . ]           The loop begins with the first key that the tile's first
          2       0   [ x x x x | x x x x | x x x . ]           query sees, and ends with the last that its last query
          2       1   [ x x x x | x x x x | x x x . ]           sees. What lies beyond on either side is not read.
          3       0   [ x x x x | x x x x | x x x x ]
          3       1   [ x x x x | x x x x | x x x x ]

The host lists the tiles of all sequences in a table (backends/triton_attn.py); no program is without work.

**Memory traffic** of a launch, in bytes, e for each element:

    read      sum over tiles of  K * (keys that the tile sees) * (2 * D * e + 4)  +  queries * H * D * e
    written   queries * H * D * e

with 4 * H * D operations per pair of a query and a key that it sees. A tile has 64 rows, some 64 operations per byte
of a key or value: the limit is the arithmetic, not the memory.

In a request's life: each attention layer of each prefill step. vLLM:
vllm/attention/ops/triton_unified_attention.py, whose programs find their sequence by a search.
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

__all__ = ["attention_varlen"]

_CONFIGS = [
    triton.Config({"BLOCK_N": tokens}, num_warps=warps, num_stages=stages)
    for tokens, warps in [(32, 4), (64, 4), (64, 8), (128, 8)]
    for stages in (2, 3)
]


@tuned(_CONFIGS, triton.Config({"BLOCK_N": 16}), key=["GROUP", "HEAD_SIZE", "KV_BLOCK_SIZE", "WINDOW", "BLOCK_M"])
@triton.jit
def attention_varlen_kernel(
    output,  # [T, H, D]
    query,  # [T, H, D]
    key_cache,  # [blocks, block_size, K, D]
    value_cache,  # the same
    tile_table,  # int32 [tiles, 2]: sequence, and number of its first query in the sequence
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
    QUERIES: tl.constexpr,  # most queries in a tile
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    KV_BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,  # 0: none
    SOFT_CAP: tl.constexpr,  # 0.0: none
    WIDEN: tl.constexpr,
    BLOCK_M: tl.constexpr,  # QUERIES * GROUP, padded
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    tile = tl.program_id(0)
    key_head = tl.program_id(1)
    sequence = tl.load(tile_table + tile * 2)
    first_query = tl.load(tile_table + tile * 2 + 1)
    token = tl.load(query_start_loc + sequence)
    queries = tl.load(query_start_loc + sequence + 1) - token
    length = tl.load(seq_lens + sequence)
    stop_query = tl.minimum(first_query + QUERIES, queries)

    row = tl.arange(0, BLOCK_M)
    number = first_query + row // GROUP
    head = key_head * GROUP + row % GROUP
    is_row = (row < QUERIES * GROUP) & (number < stop_query)
    before = length - queries  # tokens of earlier steps, the position of the first query
    token_of = (token + number).to(tl.int64)  # tokens * query_token_stride can exceed 2^31
    at = query + token_of * query_token_stride + head * query_head_stride
    q = load_rows(at, is_row, HEAD_SIZE, WIDEN, BLOCK_D)  # [BLOCK_M, BLOCK_D]
    _, total, acc = attend(
        q,
        tl.where(is_row, before + number, -1),
        tl.maximum(before + first_query + 1 - WINDOW, 0) if WINDOW > 0 else 0,
        before + stop_query,
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
    at = output + token_of * output_token_stride + head * HEAD_SIZE
    store_rows(at, averaged(acc, total), is_row, HEAD_SIZE, BLOCK_D)


def attention_varlen(call: AttentionCall) -> None:
    """Compute the attention of the tiles in `plan.tile_table` into their rows of `output`."""
    plan = call.plan
    launch(
        attention_varlen_kernel,
        (len(plan.tile_table), call.impl.num_kv_heads),
        call.output,
        *call.inputs(plan.tile_table),
        call.output.stride(0),
        QUERIES=plan.queries_per_tile,
        **call.constants(),
        BLOCK_M=block_rows(plan.queries_per_tile * call.group),
    )
