r"""Top-k and top-p without sorting: a search for the lowest score that may be sampled.

**The maths.** In a row of V scores (logits), top-k keeps those that are at least the k-th largest. Of these, top-p
keeps the fewest most probable ones whose probabilities sum to p. Both are a threshold t on the score:

    top-k    the greatest t such that  the number of scores >= t                      is at least k
    top-p    the greatest t such that  the sum of exp(score - largest), score >= t,   is at least p times that of all

Count and sum can only fall as t grows, so t is found digit by digit. The 32 bits of a float are mapped to an unsigned
integer `key` of the same order: positive numbers get their sign bit set, negative numbers have all bits flipped. A key
has 16 digits of two bits. Given the upper digits, one pass over the row finds the next: three candidates, three counts.

    digits so far   candidates        scores >= candidate, k = 50                   next digit
    10 11 ?? ??     10 11 01 00       131                                          at least 1
                    10 11 10 00        77                                          at least 2
                    10 11 11 00        12                                          not 3            --> 10 11 10 ??

**The tiling.** One program takes one row and passes over it in tiles of BLOCK_N, up to 35 times: once for the largest
score, 16 times for each threshold, once for the sum, once to write. A sort would move every score many times.

    program r:   logits [N, V], row r  | tile | tile | tile | ... |     t, counts and sums stay in registers
                                          |
                 out [N, V], row r     | tile | tile | ...              the score itself if key >= t, else -inf

**Memory traffic** of a launch, in bytes: from the GPU's memory N * V * 4 read and N * V * 4 written; a row (600 KB for
150,000 tokens) then stays in the cache between its passes, which read up to 35 * N * V * 4 from there. A row without
top-k (k = V) or without top-p (p = 1) skips that search.

All scores equal to the threshold stay. The sorting reference does the same for top-k; for top-p it keeps as many of
them as its sort puts last.

In a request's life: `Sampler.sample`, for batches with a request that samples at random. vLLM:
vllm/v1/sample/ops/topk_topp_triton.py, in versions after 0.11, which searches for pivots among the scores.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.model_executor.ops.triton.launch import launch, rows_bucket, tuned

__all__ = ["CONFIGS", "FIXED", "apply_top_k_top_p"]

CONFIGS = [
    triton.Config({"BLOCK_N": columns}, num_warps=warps)
    for columns, warps in [(1024, 4), (2048, 8), (4096, 8), (8192, 16)]
]
FIXED = triton.Config({"BLOCK_N": 1024})

_DIGITS = tl.constexpr(16)


@triton.jit
def _key(score):
    """Map float32 to uint32 of the same order; -0.0 equals 0.0."""
    bits = (score + 0.0).to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def _greatest(holds):
    """Return the greatest digit, 0 to 3, whose flag in `holds` [4] is set; digit 0 always qualifies."""
    return tl.maximum(tl.sum(holds.to(tl.uint32)), 1) - 1


@tuned(CONFIGS, FIXED, key=["vocabulary", "ROWS_BUCKET"])
@triton.jit(do_not_specialize=["ROWS_BUCKET"])
def top_k_top_p_kernel(
    logits,  # float32 [rows, vocabulary], rows `stride` apart
    out,  # the same, one row after the other
    top_k,  # int [rows]
    top_p,  # float32 [rows]
    vocabulary,
    stride,
    HAS_K: tl.constexpr,
    HAS_P: tl.constexpr,
    ROWS_BUCKET,  # read by the tuner only
    BLOCK_N: tl.constexpr,
):
    """One program: one row."""
    row = tl.program_id(0).to(tl.int64)
    scores_at, out_at = logits + row * stride, out + row * vocabulary
    column = tl.arange(0, BLOCK_N)[None, :]
    digits = tl.arange(0, 4)[:, None].to(tl.uint32)
    least = tl.full((), 0, tl.uint32)  # key of the lowest score that stays

    if HAS_K:
        k = tl.load(top_k + row)
        if k < vocabulary:
            unit = tl.full((), 1 << 30, tl.uint32)  # place value of the current digit
            for _ in range(_DIGITS):
                candidates = least + digits * unit  # [4, 1]
                counts = tl.full((4,), 0, tl.int32)
                for start in range(0, vocabulary, BLOCK_N):
                    inside = start + column < vocabulary
                    key = _key(tl.load(scores_at + start + column, mask=inside, other=0.0))
                    counts += tl.sum((inside & (key >= candidates)).to(tl.int32), axis=1)
                least += unit * _greatest(counts >= k)
                unit = unit >> 2

    if HAS_P:
        p = tl.load(top_p + row)
        if p < 1.0:
            largest = tl.full((), -float("inf"), tl.float32)
            for start in range(0, vocabulary, BLOCK_N):
                inside = start + column < vocabulary
                largest = tl.maximum(
                    largest, tl.max(tl.load(scores_at + start + column, mask=inside, other=-float("inf")))
                )
            target = tl.full((), 0.0, tl.float32)
            for start in range(0, vocabulary, BLOCK_N):
                inside = start + column < vocabulary
                scores = tl.load(scores_at + start + column, mask=inside, other=-float("inf"))
                target += p * tl.sum(tl.where(_key(scores) >= least, tl.exp(scores - largest), 0.0))

            lower = tl.full((), 0, tl.uint32)
            unit = tl.full((), 1 << 30, tl.uint32)
            for _ in range(_DIGITS):
                candidates = lower + digits * unit  # [4, 1]
                sums = tl.full((4,), 0.0, tl.float32)
                for start in range(0, vocabulary, BLOCK_N):
                    inside = start + column < vocabulary
                    scores = tl.load(scores_at + start + column, mask=inside, other=-float("inf"))
                    reaches = _key(scores) >= candidates  # [4, BLOCK_N]
                    sums += tl.sum(tl.where(reaches, tl.exp(scores - largest), 0.0), axis=1)
                lower += unit * _greatest(sums >= target)
                unit = unit >> 2
            least = tl.maximum(least, lower)  # equal, at the least, but for the rounding of the sums

    for start in range(0, vocabulary, BLOCK_N):
        inside = start + column < vocabulary
        scores = tl.load(scores_at + start + column, mask=inside, other=0.0)
        tl.store(out_at + start + column, tl.where(_key(scores) >= least, scores, -float("inf")), mask=inside)


def apply_top_k_top_p(logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    """See `Ops.apply_top_k_top_p`."""
    if top_k is None and top_p is None:
        return logits
    rows, vocabulary = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    launch(
        top_k_top_p_kernel,
        (rows,),
        *(logits, out, top_k if top_k is not None else logits, top_p if top_p is not None else logits),
        *(vocabulary, logits.stride(0)),
        HAS_K=top_k is not None,
        HAS_P=top_p is not None,
        ROWS_BUCKET=rows_bucket(rows),
    )
    return out
