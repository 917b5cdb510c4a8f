r"""Root-mean-square norms: each row divided by its root mean square, times a learned weight.

**The maths.** A row x of n elements (a token's hidden state, or one head of it):

    scale = 1 / sqrt(mean of all x_i * x_i + epsilon)        out_i = x_i * scale * w_i

Squares are summed in float32: in float16 they would overflow. x_i * scale is rounded to x's dtype before the product,
as in training. Gemma's norm multiplies by 1 + w_i and rounds only at the end. The fused norm adds the residual
connection first and writes the sum, which need not be read back from memory.

**The tiling.** One program takes BLOCK_ROWS whole rows, as a tile of BLOCK_ROWS x BLOCK_N, where BLOCK_N is the first
power of two of at least n; columns beyond n are masked. A row stays in one program, which computes its mean.

                 x [rows, n]                  program p                     out [rows, n]
             +-----------------+
             |                 |         read the tile, once
      p  --> |#################| ---->   square, sum along the row,  ----> |#################|
             |#################|         scale, times w                    |#################|
             |                 |
             +-----------------+         w [n] is read by every program: it stays in the cache

**Memory traffic** of a launch, in bytes, e for each element (2 in bfloat16):

    rms_norm             read  rows * n * e + n * e      written      rows * n * e
    fused_add_rms_norm   read  2 * rows * n * e + n * e  written  2 * rows * n * e

with about 4 operations per element: memory bandwidth is the limit. In three launches instead of one (add, square and
mean, scale), the fused norm would move twice as much.

In a request's life: twice in each layer of each step. vLLM: csrc/layernorm_kernels.cu, with a block of threads a row.
"""

import triton
import triton.language as tl
from torch import Tensor, empty_like

from tracellm.engine.model_executor.ops.triton.launch import Grid, launch, rows_bucket, tuned

__all__ = ["CONFIGS", "FIXED", "fused_add_rms_norm", "rms_norm"]

CONFIGS = [
    triton.Config({"BLOCK_ROWS": rows}, num_warps=warps)
    for rows, warps in [(1, 1), (1, 4), (1, 8), (4, 2), (4, 4), (8, 4)]
]
FIXED = triton.Config({"BLOCK_ROWS": 128})


@tuned(CONFIGS, FIXED, key=["N", "ROWS_BUCKET"])
@triton.jit(do_not_specialize=["rows", "ROWS_BUCKET"])
def rms_norm_kernel(
    x,  # [rows, N]: row r at (r // heads) * token_stride + (r % heads) * head_stride
    weight,  # [N]
    out,  # [rows, N], one row after the other
    rows,
    heads,
    token_stride,
    head_stride,
    epsilon,
    N: tl.constexpr,
    ADD_ONE: tl.constexpr,  # Gemma's
    BLOCK_N: tl.constexpr,
    ROWS_BUCKET,  # read by the tuner only
    BLOCK_ROWS: tl.constexpr,
):
    """One program: BLOCK_ROWS rows."""
    row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    column = tl.arange(0, BLOCK_N)[None, :]
    inside = (row < rows) & (column < N)  # [BLOCK_ROWS, BLOCK_N]
    token = (row // heads).to(tl.int64)  # tokens * token_stride can exceed 2^31
    at = x + token * token_stride + (row % heads) * head_stride + column
    wide = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + column, mask=column < N, other=0.0).to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, axis=1)[:, None] / N + epsilon)
    if ADD_ONE:
        result = normed * (1.0 + w)
    else:
        result = normed.to(x.dtype.element_ty).to(tl.float32) * w
    tl.store(out + row.to(tl.int64) * N + column, result.to(out.dtype.element_ty), mask=inside)


@tuned(CONFIGS, FIXED, key=["N", "ROWS_BUCKET"])
@triton.jit(do_not_specialize=["rows", "ROWS_BUCKET"])
def fused_add_rms_norm_kernel(
    x,  # [rows, N], one row after the other, as all that follow
    residual,
    weight,  # [N]
    out,
    total,  # x + residual
    rows,
    epsilon,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS_BUCKET,  # read by the tuner only
    BLOCK_ROWS: tl.constexpr,
):
    """One program: BLOCK_ROWS rows."""
    row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    column = tl.arange(0, BLOCK_N)[None, :]
    inside = (row < rows) & (column < N)  # [BLOCK_ROWS, BLOCK_N]
    at = row.to(tl.int64) * N + column
    added = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + tl.load(residual + at, mask=inside, other=0.0)
    rounded = added.to(total.dtype.element_ty)
    tl.store(total + at, rounded, mask=inside)
    wide = rounded.to(tl.float32)  # the norm of the rounded sum, which the next layer reads
    w = tl.load(weight + column, mask=column < N, other=0.0).to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, axis=1)[:, None] / N + epsilon)
    tl.store(out + at, (normed.to(out.dtype.element_ty).to(tl.float32) * w).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, *, add_one: bool = False) -> Tensor:
    """See `Ops.rms_norm`; with `add_one`, `Ops.gemma_rms_norm`. x is [T, n] or [T, heads, n], its rows may be apart."""
    n = x.shape[-1]
    if x.stride(-1) != 1 or x.dim() > 3:
        x = x.reshape(-1, n).contiguous()
    token_stride, heads, head_stride = (x.stride(0), x.shape[1], x.stride(1)) if x.dim() == 3 else (x.stride(0), 1, 0)
    out = x.new_empty(x.shape)
    rows = x.numel() // n
    launch(
        rms_norm_kernel,
        _by_rows(rows),
        *(x, weight, out, rows, heads, token_stride, head_stride, epsilon),
        N=n,
        ADD_ONE=add_one,
        BLOCK_N=triton.next_power_of_2(n),
        ROWS_BUCKET=rows_bucket(rows),
    )
    return out


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """See `Ops.fused_add_rms_norm`."""
    x, residual = x.contiguous(), residual.contiguous()
    rows, n = x.shape
    out, total = empty_like(x), empty_like(x)
    launch(
        fused_add_rms_norm_kernel,
        _by_rows(rows),
        *(x, residual, weight, out, total, rows, epsilon),
        N=n,
        BLOCK_N=triton.next_power_of_2(n),
        ROWS_BUCKET=rows_bucket(rows),
    )
    return out, total


def _by_rows(rows: int) -> Grid:
    """Return the grid of programs for all rows."""
    return lambda blocks: (triton.cdiv(rows, blocks["BLOCK_ROWS"]),)
