r"""Attention for sequences with several queries in a step: prompts, pieces of prompts, prompts with a cached prefix.

**The maths** is that of paged attention (paged_attention_v1.py), for many queries at a time: the query at position p
sees the keys at positions 0 .. p, with a window w those at p - w + 1 .. p. This step's keys are in the cache already,
so that a chunk, the prefix before it, and a whole prompt are one case.

**The tiling.** A sequence's queries are cut into tiles of neighbours. A row of a tile is a query with one of its heads;
the G query heads that share a key head are in the same tile, next to each other, so that a key that is read serves
G * queries rows at once:

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

Which tile is whose is in a table that the host has made (attention_plan.py), so that no program is started in vain.

**Memory traffic** of a launch, in bytes, e for each element:

    read      sum over tiles of  K * (keys that the tile sees) * (2 * D * e + 4)  +  queries * H * D * e
    written   queries * H * D * e

and 4 * H * D operations for each pair of a query and a key that it sees. A tile has 64 rows: some 64 operations for
each byte of a key or value, which is more than a GPU's memory needs to keep up with.

In a request's life: each attention layer of the steps that compute its prompt. vLLM:
vllm/attention/ops/triton_unified_attention.py, which finds a program's sequence by a search instead.
"""

import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.ops.interface import AttentionMetadata
from tracellm.engine.ops.triton.attention_plan import AttentionPlan
from tracellm.engine.ops.triton.attention_work import attention_work
from tracellm.engine.ops.triton.launch import Work, launch, tuned
from tracellm.engine.ops.triton.paged_attention_v1 import block_rows, constants

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
    tile_table,  # int32 [tiles, 2]: its sequence, and which of the sequence's queries is its first
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
    QUERIES: tl.constexpr,  # the most in a tile
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
    dim = tl.arange(0, BLOCK_D)
    number = first_query + row // GROUP
    head = key_head * GROUP + row % GROUP
    is_query = (row < QUERIES * GROUP) & (number < stop_query)
    at = length - queries + number  # the query's position, [BLOCK_M]
    in_query = is_query[:, None] & (dim < HEAD_SIZE)[None, :]
    where = (token + number)[:, None] * query_token_stride + head[:, None] * query_head_stride + dim[None, :]
    q = tl.load(query + where, mask=in_query, other=0.0)
    if WIDEN:
        q = q.to(tl.float32)

    greatest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_D], 0.0, tl.float32)
    first = tl.maximum(length - queries + first_query + 1 - WINDOW, 0) if WINDOW > 0 else 0
    stop = length - queries + stop_query
    for start in range(first, stop, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        is_key = position < stop
        block = tl.load(block_table + sequence * table_stride + position // KV_BLOCK_SIZE, mask=is_key, other=0)
        place = block.to(tl.int64) * cache_block_stride + (position % KV_BLOCK_SIZE) * cache_slot_stride
        place = place[:, None] + key_head * cache_head_stride + dim[None, :]  # [BLOCK_N, BLOCK_D]
        in_cache = is_key[:, None] & (dim < HEAD_SIZE)[None, :]
        k = tl.load(key_cache + place, mask=in_cache, other=0.0)
        v = tl.load(value_cache + place, mask=in_cache, other=0.0)
        if WIDEN:
            k = k.to(tl.float32)
            v = v.to(tl.float32)

        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BLOCK_M, BLOCK_N]
        if SOFT_CAP > 0.0:
            shrunk = tl.exp(-2.0 * tl.abs(scores) / SOFT_CAP)
            bent = SOFT_CAP * (1.0 - shrunk) / (1.0 + shrunk)
            scores = tl.where(scores < 0.0, -bent, bent)
        sees = is_query[:, None] & (position[None, :] <= at[:, None])
        if WINDOW > 0:
            sees = sees & (position[None, :] > at[:, None] - WINDOW)
        scores = tl.where(sees, scores, float("-inf"))

        now_greatest = tl.maximum(greatest, tl.max(scores, 1))
        finite = tl.where(now_greatest > float("-inf"), now_greatest, 0.0)  # a row that has seen no key as yet
        shrink = tl.exp(greatest - finite)
        weights = tl.exp(scores - finite[:, None])
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        greatest = now_greatest

    result = acc / tl.where(total > 0.0, total, 1.0)[:, None]  # rows that only pad the tile have seen nothing
    where = output + (token + number)[:, None] * output_token_stride + head[:, None] * HEAD_SIZE + dim[None, :]
    tl.store(where, result.to(output.dtype.element_ty), mask=in_query)


def attention_varlen(
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
    """Attend for the tiles in `plan.tiles`, into their rows of `output` [T, H, D]; see `Ops.paged_attention`."""
    key_heads, head_size = key_cache.shape[2:]
    group = query.shape[1] // key_heads
    queries = min(plan.queries_per_tile, triton.next_power_of_2(max(reads.queries for reads in plan.tiles)))
    launch(
        attention_varlen_kernel,
        (len(plan.tiles), key_heads),
        output,
        query,
        key_cache,
        value_cache,
        plan.tile_table,
        metadata.query_start_loc,
        metadata.seq_lens,
        metadata.block_table,
        scale,
        query.stride(0),
        query.stride(1),
        *key_cache.stride()[:3],
        metadata.block_table.stride(0),
        output.stride(0),
        work=lambda: plan.work_of("varlen", lambda: _work(plan, query, key_cache, metadata)),
        QUERIES=queries,
        **constants(group, head_size, key_cache.shape[1], window, soft_cap),
        BLOCK_M=block_rows(queries * group),
    )


def _work(plan: AttentionPlan, query: Tensor, key_cache: Tensor, metadata: AttentionMetadata) -> Work:
    programs = [((number, None), reads) for number, reads in enumerate(plan.tiles)]
    return attention_work(programs, query, key_cache, metadata)
