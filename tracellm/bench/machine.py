"""The machine under a benchmark: its description, and its measured memory bandwidth and FLOP/s.

Other figures are given as shares of these ceilings, so each benchmark measures them itself, with the engine's number
of threads.
"""

import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracellm.bench.figures import number
from tracellm.report.texts import Language, text

if TYPE_CHECKING:
    import torch

__all__ = ["Ceilings", "describe", "described", "matrix_instructions", "measure_ceilings", "processor", "synchronized"]

_BYTES = 1 << 28  # 256 MiB, larger than a CPU cache
_GPU_BYTES = 1 << 32  # or half of the free memory
_ROW = 1024  # elements
_SIDES = (256, 512, 1024, 1536)  # of square matrices
_GPU_SIDES = (4096, 8192)
_LONG = 0.1  # seconds; after a multiplication this long, larger matrices are no faster
_REPEATS = 5
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")
"""CPU flags of vector and matrix instructions, from slow to fast."""


@dataclass(frozen=True)
class Ceilings:
    """Measured peak rates of memory and arithmetic."""

    read_bytes_per_second: float
    """Sequential reads."""
    flops_per_second: float
    """Multiplication of large matrices of `dtype`, on a CPU also of float32. A multiply-add counts as two."""
    dtype: str

    def seconds(self, num_bytes: float, flops: float) -> float:
        """Return the minimum time for reads and computation that overlap."""
        return max(num_bytes / self.read_bytes_per_second, flops / self.flops_per_second)

    def merged(self, other: "Ceilings") -> "Ceilings":
        """Return the higher rates of two measurements: noise only slows a machine down."""
        return Ceilings(
            max(self.read_bytes_per_second, other.read_bytes_per_second),
            max(self.flops_per_second, other.flops_per_second),
            self.dtype,
        )


def measure_ceilings(dtype: "torch.dtype", device: "torch.device | str" = "cpu", repeats: int = _REPEATS) -> Ceilings:
    """Measure memory reads and matrix multiplication, the best of `repeats` each. Takes about a second."""
    import torch

    on_gpu = torch.device(device).type == "cuda"
    num_bytes = min(_GPU_BYTES, torch.cuda.mem_get_info(device)[0] // 2) if on_gpu else _BYTES
    matrix = torch.ones(num_bytes // 4 // _ROW, _ROW, dtype=torch.float32, device=device)
    # Which of these is faster differs between machines; each reads the matrix once.
    readers = (matrix.sum, lambda: matrix @ matrix[0])
    read_seconds = min(best_of(synchronized(read, device), repeats) for read in readers)
    # On a CPU without 16-bit instructions float32 is faster, and so the limit of both.
    dtypes = [dtype] if on_gpu else list(dict.fromkeys([dtype, torch.float32]))
    fastest = max(_matmul_flops_per_second(each, device, repeats) for each in dtypes)
    return Ceilings(matrix.numel() * 4 / read_seconds, fastest, str(dtype).removeprefix("torch."))


def _matmul_flops_per_second(dtype: "torch.dtype", device: "torch.device | str", repeats: int) -> float:
    """Return the FLOP/s of multiplying large matrices, for the best size."""
    fastest = 0.0
    for side in _GPU_SIDES if str(device).startswith("cuda") else _SIDES:
        seconds = _multiply(side, dtype, device, repeats)
        fastest = max(fastest, 2 * side**3 / seconds)
        if seconds > _LONG:
            break
    return fastest


def _multiply(side: int, dtype: "torch.dtype", device: "torch.device | str", repeats: int) -> float:
    """Return the seconds to multiply two square matrices."""
    import torch

    left, right = torch.randn(2, side, side, device=device).to(dtype).unbind()
    return best_of(synchronized(lambda: left @ right, device), repeats)


def best_of(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest of `repeats` times, in seconds, after a warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def synchronized(work: Callable[[], object], device: "torch.device | str") -> Callable[[], None]:
    """Return a function that calls `work` and waits for the device."""
    import torch

    on_gpu = torch.device(device).type == "cuda"

    def run() -> None:
        work()
        if on_gpu:
            torch.cuda.synchronize(device)

    return run


def describe(threads: int | None = None) -> str:
    """Return a line with the date, processor and its matrix instructions, GPU, threads and versions."""
    import torch

    lines = [time.strftime("%Y-%m-%d"), processor()]
    if found := matrix_instructions():
        lines.append("+".join(found))
    if torch.cuda.is_available():
        lines.append(torch.cuda.get_device_name())
    count = threads or torch.get_num_threads()
    lines.append(f"{count} thread" if count == 1 else f"{count} threads")
    return ", ".join([*lines, f"Python {platform.python_version()}", f"torch {torch.__version__}"])


def described(ceilings: Ceilings, lang: Language) -> str:
    """Return the two lines above a table: the machine, and its ceilings."""
    return text(
        lang,
        "bench.machine",
        machine=describe(),
        read=number(ceilings.read_bytes_per_second / 1e9),
        flops=number(ceilings.flops_per_second / 1e9),
        dtype=ceilings.dtype,
    )


def matrix_instructions() -> list[str]:
    """Return the processor's vector and matrix instructions; empty if the system does not list them."""
    flags = _cpuinfo(r"^(?:flags|Features)\s*:\s*(.+)$")
    known = flags.split() if flags else []
    return [name for name in _INSTRUCTIONS if name in known]


def processor() -> str:
    """Return the processor's name and the number of CPUs."""
    count = len(re.findall(r"^processor\s*:", _CPUINFO.read_text(), re.MULTILINE)) if _CPUINFO.exists() else 0
    name = _cpuinfo(r"^model name\s*:\s*(.+)$") or platform.machine()
    return f"{name}, {count or '?'} CPU"


_CPUINFO = Path("/proc/cpuinfo")


def _cpuinfo(pattern: str) -> str:
    """Return a property of the first processor; empty on systems other than Linux."""
    if not _CPUINFO.exists():
        return ""
    found = re.search(pattern, _CPUINFO.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return found[1].strip() if found else ""
