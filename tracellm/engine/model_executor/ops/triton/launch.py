"""Launching and tuning of the engine's Triton kernels.

`kernel[grid](...)` starts grid[0] * grid[1] * ... *programs*, copies of the kernel that differ only in their
`tl.program_id`, and returns before they have run. All launches go through `launch`.

Under TRITON_INTERPRET=1 the same kernels run on the CPU, one program at a time, in NumPy, for reading and testing.

vLLM has no counterpart: its kernels are launched where they are used.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import triton

__all__ = ["INTERPRETED", "Grid", "launch", "rows_bucket", "tuned"]

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]
"""Programs along each of one to three axes, or a function of the tuned block sizes that returns them."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""True if kernels run in Triton's interpreter; Triton decides when it is imported."""


def launch(kernel: Any, grid: Grid, *args: Any, **constants: Any) -> None:
    """Start `kernel` over `grid`.

    Args:
        kernel: a function decorated with `triton.jit`, or by `tuned`.
        grid: the programs.
        args: tensors and numbers, in the order of the kernel's parameters.
        constants: the kernel's `tl.constexpr` parameters, except the tuned ones.
    """
    kernel[grid](*args, **constants)


def tuned(configs: list[Any], fixed: Any, key: list[str]) -> Callable[[Any], Any]:
    """Return a decorator that makes a kernel use the fastest of `configs` on a GPU, found by trying all.

    Tuning runs at the first launch, and again for each new combination of dtypes and of the arguments in `key`. It
    takes some hundred launches per configuration; the result is kept in Triton's disk cache. The interpreter uses
    `fixed`.

    Triton compiles a kernel again for an integer argument that is 1 or a multiple of 16. Strides are the same in all
    steps, but the number of rows is not: kernels mark it `do_not_specialize`, or steps would wait for the compiler.

    Kernels over rows have `ROWS_BUCKET` in their key (see `rows_bucket`). Tiles of many rows, the fastest for a prompt,
    would make one or two programs of a decode step, and leave the GPU idle.

    Args:
        configs: `triton.Config`s with the block sizes, warps and stages to try.
        fixed: configuration for the interpreter.
        key: names of the parameters on which the fastest configuration depends.
    """
    decorate: Callable[[Any], Any] = triton.autotune(
        configs=[fixed] if INTERPRETED else configs, key=key, cache_results=not INTERPRETED
    )
    return decorate


def rows_bucket(rows: int) -> int:
    """Return the smallest of 16, 256, 4096, ... that is at least `rows`: few buckets, so few steps tune."""
    size = 16
    while size < rows:
        size *= 16
    return size
