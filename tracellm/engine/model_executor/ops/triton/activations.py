r"""Activations of gated feed-forward blocks: one half of each row, activated, multiplies the other half.

**The maths.** A row x has 2n elements, the gate g and then u ("up"):

    silu_and_mul        out_i = g_i * sigmoid(g_i) * u_i             sigmoid(z) = 1 / (1 + exp(-z))
    gelu_tanh_and_mul   out_i = 0.5 * g_i * (1 + tanh(z)) * u_i      z = sqrt(2 / pi) * (g_i + 0.044715 * g_i^3)

As (1 + tanh(z)) / 2 = sigmoid(2z), both are g_i * sigmoid(something) * u_i. All in float32, rounded at the end.

**The tiling.** The elements of the result are independent: one program takes BLOCK_ROWS rows and BLOCK_N columns, the
same columns of both halves.

              x [T, 2n]                                              out [T, n]
          gate              up
      +-----------------+-----------------+                      +-----------------+
      |      ####       |      ####       |    program (p, q)    |      ####       |
      |      ####       |      ####       |  ----------------->  |      ####       |
      |                 |                 |                      |                 |
      +-----------------+-----------------+                      +-----------------+

**Memory traffic** of a launch, in bytes, e for each element: read 2 * T * n * e, written T * n * e. Some 5 operations
(10 for gelu) per element of the result: memory bandwidth is the limit. In two launches, the activated gate would be
written and read once more: 5 * T * n * e instead of 3.

In a request's life: once in each layer of each step. vLLM: csrc/activation_kernels.cu.
"""

import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.model_executor.ops.triton.launch import launch, rows_bucket, tuned

__all__ = ["CONFIGS", "FIXED", "act_and_mul"]

CONFIGS = [
    triton.Config({"BLOCK_ROWS": rows, "BLOCK_N": columns}, num_warps=warps)
    for rows, columns, warps in [(1, 512, 2), (1, 1024, 4), (1, 2048, 8), (4, 512, 4), (4, 1024, 8)]
]
FIXED = triton.Config({"BLOCK_ROWS": 64, "BLOCK_N": 128})


@triton.jit
def _sigmoid(z):
    """Compute the sigmoid from exp(-|z|), which cannot overflow."""
    small = tl.exp(-tl.abs(z))
    return tl.where(z >= 0, 1.0, small) / (1.0 + small)


@tuned(CONFIGS, FIXED, key=["n", "ROWS_BUCKET"])
@triton.jit(do_not_specialize=["rows", "ROWS_BUCKET"])
def act_and_mul_kernel(
    x,  # [rows, 2n], rows `row_stride` apart
    out,  # [rows, n], one row after the other
    rows,
    n,
    row_stride,
    GELU: tl.constexpr,  # else silu
    ROWS_BUCKET,  # read by the tuner only
    BLOCK_ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: BLOCK_ROWS rows, BLOCK_N columns of the result."""
    row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)[:, None]  # rows * 2n can exceed 2^31
    column = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    inside = (row < rows) & (column < n)  # [BLOCK_ROWS, BLOCK_N]
    at = x + row * row_stride + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + n, mask=inside, other=0.0).to(tl.float32)
    if GELU:
        activated = _sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))  # 2 * sqrt(2 / pi) = 1.59...
    else:
        activated = _sigmoid(gate)
    tl.store(out + row * n + column, (gate * activated * up).to(out.dtype.element_ty), mask=inside)


def act_and_mul(x: Tensor, *, gelu: bool) -> Tensor:
    """See `Ops.silu_and_mul` and, with `gelu`, `Ops.gelu_tanh_and_mul`."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    rows, n = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, n)
    launch(
        act_and_mul_kernel,
        lambda blocks: (triton.cdiv(rows, blocks["BLOCK_ROWS"]), triton.cdiv(n, blocks["BLOCK_N"])),
        *(x, out, rows, n, x.stride(0)),
        GELU=gelu,
        ROWS_BUCKET=rows_bucket(rows),
    )
    return out
