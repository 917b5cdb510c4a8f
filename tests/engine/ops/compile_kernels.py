"""Compile every kernel for a GPU on a machine without one, and print the size of each one's machine code in bytes.

`python -m tests.engine.ops.compile_kernels` calls each operation in bfloat16 on the CPU, as a layer of a small model
would. Each launch compiles its kernel for an H100 with the first configuration that is tried. Attention is compiled
with and without a window and a cap, for a tile that fills a matrix unit of an H100.
"""

import os

os.environ.pop("TRITON_INTERPRET", None)

from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tests.engine.ops.attention_batch import Batch
from tracellm.engine.attention.backends import triton_attn
from tracellm.engine.model_executor.ops.triton import TritonOps

H100 = GPUTarget("cuda", 90, 32)
SHARED_MEMORY = 227 * 1024
"""Shared memory limit of a program, in bytes."""

_POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


def kind(value: object) -> str:
    """Return a run-time argument's type as Triton writes it."""
    if isinstance(value, torch.Tensor):
        return _POINTERS[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def compile_it(kernel: JITFunction, args: tuple[Any, ...], constants: dict[str, Any], options: dict[str, Any]) -> None:
    """Compile a kernel as a launch does, without running it."""
    named = dict(zip(kernel.arg_names, args, strict=False)) | constants
    is_constant = {param.name: param.is_constexpr for param in kernel.params}
    source = ASTSource(
        kernel,
        {name: "constexpr" if is_constant[name] else kind(value) for name, value in named.items()},
        {(kernel.arg_names.index(name),): value for name, value in named.items() if is_constant[name]},
    )
    compiled = triton.compile(source, target=H100, options=options)
    assert compiled.metadata.shared <= SHARED_MEMORY, f"{kernel.__name__} needs {compiled.metadata.shared} bytes"
    print(kernel.__name__, len(compiled.asm["cubin"]))  # noqa: T201  (the test reads it)


def run_tuned(self: Any, *args: Any, grid: Any, warmup: bool, **constants: Any) -> None:
    """Replacement for `Autotuner.run`."""
    config = self.configs[0]
    compile_it(
        self.fn, args, constants | config.kwargs, {"num_warps": config.num_warps, "num_stages": config.num_stages}
    )


def run_plain(self: Any, *args: Any, grid: Any, warmup: bool, **constants: Any) -> None:
    """Replacement for `JITFunction.run`."""
    compile_it(self, args, constants, {})


def main() -> None:
    """Call each operation."""
    Autotuner.run, JITFunction.run = run_tuned, run_plain
    ops = TritonOps()

    def numbers(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.bfloat16)

    x, weight = numbers(3, 48), numbers(48)
    ops.gemma_rms_norm(x, weight, 1e-6)
    ops.fused_add_rms_norm(x, x, weight, 1e-6)
    ops.gelu_tanh_and_mul(x)
    ops.rotary_embedding(torch.arange(3), numbers(3, 2, 16), numbers(3, 1, 16), numbers(8, 16))
    ops.apply_top_k_top_p(torch.ones(2, 100), torch.tensor([1, 2]), torch.tensor([0.5, 0.5]))
    lengths = [(1, 40), (16, 30)]
    small: dict[str, Any] = {"heads": (4, 2), "window": 33, "cap": 50.0}
    large: dict[str, Any] = {"heads": (14, 2), "head_size": 128}
    for sizes in (small, large):
        batch = Batch(lengths, block_size=16, dtype=torch.bfloat16, **sizes)
        for partition in (512, 16):  # the second splits a short context
            triton_attn.PARTITION = partition
            batch.attend("triton")


if __name__ == "__main__":
    main()
