"""How every Triton kernel of the engine is launched, and what a launch has to do: bytes to move, operations to compute.

`kernel[grid](...)` starts grid[0] * grid[1] * ... *programs*, copies of the kernel that differ in nothing but their
`tl.program_id`, and returns before they have run. All launches go through `launch`, so that there is one place to
look at them from. What a launch has to do is worked out by the host, from shapes and lengths that it knows, and only
when somebody asks: nothing waits for the device.

Under TRITON_INTERPRET=1 the same kernels run on the CPU, a program at a time, in NumPy: to be read, watched and tested.

vLLM has no counterpart: its kernels are launched where they are used.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import triton

__all__ = ["INTERPRETED", "Grid", "about", "launch", "tuned"]

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]
"""How many programs there are along each axis, one to three; or what says so, given the block sizes that were tuned."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Do kernels run in Triton's interpreter? Decided once, when the first of them is defined."""


def launch(kernel: Any, grid: Grid, *args: Any, **constants: Any) -> None:
    """Start `kernel` over `grid`.

    Args:
        kernel: a function decorated with `triton.jit`, or by `tuned`.
        grid: how many programs there are.
        args: tensors and numbers, in the order of the kernel's parameters.
        constants: the kernel's `tl.constexpr` parameters, besides those that are tuned.
    """
    kernel[grid](*args, **constants)


def tuned(configs: list[Any], fixed: Any, key: list[str]) -> Callable[[Any], Any]:
    """Decorate a kernel so that on a GPU the fastest of `configs` is used, found by trying them all.

    That happens at the first launch, and again for each new combination of the arguments named in `key` and of dtypes.
    What was found is kept on disk, in Triton's cache, beside what was compiled: trying them all takes as long as some
    hundred launches each, and the next process need not. In the interpreter nothing is tried: `fixed` is used.

    Triton compiles a kernel anew for a number that is 1 or a multiple of 16. How far rows are apart is the same in all
    steps, but not how many they are: of that kernels say `do_not_specialize`, or steps would wait for the compiler.

    Kernels over rows have `ABOUT_ROWS` in their key (see `about`): tiles of many rows, the fastest for the thousands of
    a prompt, would be one or two programs for the few rows of a step that decodes, and leave a GPU idle.

    Args:
        configs: of `triton.Config`, with the block sizes, warps and stages to try.
        fixed: the one for the interpreter.
        key: names of parameters on which the fastest one depends.
    """
    decorate: Callable[[Any], Any] = triton.autotune(
        configs=[fixed] if INTERPRETED else configs, key=key, cache_results=not INTERPRETED
    )
    return decorate


def about(rows: int) -> int:
    """16, 256, 4096, ...: the first that so many rows fit in. Few enough classes that not every step tunes anew."""
    size = 16
    while size < rows:
        size *= 16
    return size
