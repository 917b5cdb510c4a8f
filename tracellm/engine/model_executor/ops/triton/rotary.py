r"""Rotary embedding: rotates pairs of elements of each query and key head by an angle that grows with the position.

**The maths.** A head has D elements; element i is paired with i + D/2 (NeoX style). At position p the pair is rotated
by the angle p * f_i, with the frequency f_i of the pair. The cosines and sines of all positions are in a table:

    out_i         = x_i * cos(p * f_i)  -  x_(i + D/2) * sin(p * f_i)
    out_(i + D/2) = x_(i + D/2) * cos(p * f_i)  +  x_i * sin(p * f_i)

The product of a rotated query and a rotated key depends on their distance only, not on their positions.

**The tiling.** One program takes BLOCK_TOKENS tokens with all their heads, first the query's, then the key's, as two
tiles [BLOCK_TOKENS, heads, D/2]: the first halves of the heads and the second. It reads a token's row of the table
once and uses it for all its heads.

      positions [T]         cos_sin_cache [positions, D]           query, key: token t
      +---+                 +-------------+-------------+          head 0      head 1      head 2
      | 7 | --- row 7 ----> | cos 0..D/2  | sin 0..D/2  |        [first|second][first|second][first|second]
      +---+                 +-------------+-------------+            \   /
                                                                   rotated together

**Memory traffic** of a launch, in bytes, e for each element:

    read     T * (H + K) * D * e  (heads)  +  T * D * e  (table, often in the cache)  +  T * 8  (positions)
    written  T * (H + K) * D * e

with 3 operations per element of a head (two products and an addition).

In a request's life: once in each layer of each step, before the keys are written to the cache. The result is new,
contiguous memory; the input heads are views of one merged projection. vLLM: csrc/pos_encoding_kernels.cu, which
rotates in place.
"""

import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.model_executor.ops.triton.launch import launch, rows_bucket, tuned

__all__ = ["CONFIGS", "FIXED", "rotary_embedding"]

CONFIGS = [
    triton.Config({"BLOCK_TOKENS": tokens}, num_warps=warps)
    for tokens, warps in [(1, 2), (1, 4), (1, 8), (2, 4), (4, 4), (4, 8)]
]
FIXED = triton.Config({"BLOCK_TOKENS": 16})


@triton.jit
def _rotate(x, out, token, head, pair, inside, cos, sin, token_stride, head_stride, heads, HALF: tl.constexpr):
    """Rotate the tile [BLOCK_TOKENS, heads, pairs] of x and write it to `out`, whose heads are contiguous."""
    at = token * token_stride + head * head_stride + pair
    first = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + at + HALF, mask=inside, other=0.0).to(tl.float32)
    to = (token * heads + head) * (2 * HALF) + pair
    tl.store(out + to, (first * cos - second * sin).to(out.dtype.element_ty), mask=inside)
    tl.store(out + to + HALF, (second * cos + first * sin).to(out.dtype.element_ty), mask=inside)


@tuned(CONFIGS, FIXED, key=["Q_HEADS", "K_HEADS", "HALF", "ROWS_BUCKET"])
@triton.jit(do_not_specialize=["tokens", "ROWS_BUCKET"])
def rotary_embedding_kernel(
    positions,  # int [tokens]
    query,  # [tokens, Q_HEADS, 2 * HALF], tokens and heads `*_stride` apart
    key,  # [tokens, K_HEADS, 2 * HALF]
    cos_sin_cache,  # [positions, 2 * HALF]
    query_out,  # like query and key, contiguous
    key_out,
    tokens,
    query_token_stride,
    query_head_stride,
    key_token_stride,
    key_head_stride,
    Q_HEADS: tl.constexpr,
    K_HEADS: tl.constexpr,
    HALF: tl.constexpr,  # D / 2
    BLOCK_Q: tl.constexpr,  # powers of two: at least Q_HEADS, K_HEADS, HALF
    BLOCK_K: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    ROWS_BUCKET,  # read by the tuner only
    BLOCK_TOKENS: tl.constexpr,
):
    """One program: BLOCK_TOKENS tokens, all heads."""
    # int64: tokens * query_token_stride can exceed 2^31
    token = (tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)).to(tl.int64)[:, None, None]
    pair = tl.arange(0, BLOCK_HALF)[None, None, :]
    in_range = (token < tokens) & (pair < HALF)  # [BLOCK_TOKENS, 1, BLOCK_HALF]
    position = tl.load(positions + token, mask=token < tokens, other=0)
    row = cos_sin_cache + position * (2 * HALF) + pair
    cos = tl.load(row, mask=in_range, other=0.0).to(tl.float32)
    sin = tl.load(row + HALF, mask=in_range, other=0.0).to(tl.float32)

    head = tl.arange(0, BLOCK_Q)[None, :, None]
    inside = in_range & (head < Q_HEADS)
    _rotate(query, query_out, token, head, pair, inside, cos, sin, query_token_stride, query_head_stride, Q_HEADS, HALF)
    head = tl.arange(0, BLOCK_K)[None, :, None]
    inside = in_range & (head < K_HEADS)
    _rotate(key, key_out, token, head, pair, inside, cos, sin, key_token_stride, key_head_stride, K_HEADS, HALF)


def rotary_embedding(positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor) -> tuple[Tensor, Tensor]:
    """See `Ops.rotary_embedding`."""
    tokens, num_heads, size = query.shape
    num_kv_heads = key.shape[1]
    query, key = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key))
    query_out, key_out = query.new_empty(query.shape), key.new_empty(key.shape)
    launch(
        rotary_embedding_kernel,
        lambda blocks: (triton.cdiv(tokens, blocks["BLOCK_TOKENS"]),),
        *(positions, query, key, cos_sin_cache, query_out, key_out, tokens),
        *(query.stride(0), query.stride(1), key.stride(0), key.stride(1)),
        Q_HEADS=num_heads,
        K_HEADS=num_kv_heads,
        HALF=size // 2,
        BLOCK_Q=triton.next_power_of_2(num_heads),
        BLOCK_K=triton.next_power_of_2(num_kv_heads),
        BLOCK_HALF=triton.next_power_of_2(size // 2),
        ROWS_BUCKET=rows_bucket(tokens),
    )
    return query_out, key_out
