"""The machine that a benchmark runs on: its name for the page, and what its memory and its arithmetic give, measured.

These rates are the ceilings that every other figure is held against, so they are measured in the same run, with as many
threads as the engine has.
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

_BYTES = 1 << 28  # 256 MiB: more than any cache here holds
_GPU_BYTES = 1 << 32  # or half of what an engine has left free
_ROW = 1024  # numbers
_SIDES = (256, 512, 1024, 1536)  # rows and columns of the matrices that are multiplied
_GPU_SIDES = (4096, 8192)
_LONG = 0.1  # seconds; larger matrices than those that take this long give nothing new
_REPEATS = 5
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")
"""Flags of a processor for how fast it multiplies, from slow to fast."""


@dataclass(frozen=True)
class Ceilings:
    """Measured ceilings: the most that any computation can be expected to reach."""

    read_bytes_per_second: float
    """Reading memory from one end to the other."""
    flops_per_second: float
    """Multiplying large matrices of `dtype` (on a CPU, or of float32); a multiplication and an addition are two."""
    dtype: str

    def seconds(self, num_bytes: float, flops: float) -> float:
        """The least time for so much reading and computing, which go on at once."""
        return max(num_bytes / self.read_bytes_per_second, flops / self.flops_per_second)

    def merged(self, other: "Ceilings") -> "Ceilings":
        """The higher of two measurements: nothing makes a machine faster than it is."""
        return Ceilings(
            max(self.read_bytes_per_second, other.read_bytes_per_second),
            max(self.flops_per_second, other.flops_per_second),
            self.dtype,
        )


def measure_ceilings(dtype: "torch.dtype", device: "torch.device | str" = "cpu", repeats: int = _REPEATS) -> Ceilings:
    """Read a large piece of memory, and multiply large matrices: the best of `repeats` each. Takes about a second."""
    import torch

    on_gpu = torch.device(device).type == "cuda"
    num_bytes = min(_GPU_BYTES, torch.cuda.mem_get_info(device)[0] // 2) if on_gpu else _BYTES
    matrix = torch.ones(num_bytes // 4 // _ROW, _ROW, dtype=torch.float32, device=device)
    # Which of these two reads faster differs between machines; neither reads anything twice.
    readers = (matrix.sum, lambda: matrix @ matrix[0])
    read_seconds = min(best_of(synchronized(read, device), repeats) for read in readers)
    # A CPU without instructions for 16 bits does best to widen them: what float32 reaches is then the limit for both.
    dtypes = [dtype] if on_gpu else list(dict.fromkeys([dtype, torch.float32]))
    fastest = max(_multiplications_per_second(one, device, repeats) for one in dtypes)
    return Ceilings(matrix.numel() * 4 / read_seconds, fastest, str(dtype).removeprefix("torch."))


def _multiplications_per_second(dtype: "torch.dtype", device: "torch.device | str", repeats: int) -> float:
    """Multiplications and additions of large matrices."""
    fastest = 0.0
    for side in _GPU_SIDES if str(device).startswith("cuda") else _SIDES:
        seconds = _multiply(side, dtype, device, repeats)
        fastest = max(fastest, 2 * side**3 / seconds)
        if seconds > _LONG:
            break
    return fastest


def _multiply(side: int, dtype: "torch.dtype", device: "torch.device | str", repeats: int) -> float:
    """Seconds to multiply two square matrices."""
    import torch

    left, right = torch.randn(2, side, side, device=device).to(dtype).unbind()
    return best_of(synchronized(lambda: left @ right, device), repeats)


def best_of(work: Callable[[], object], repeats: int) -> float:
    """The shortest time that it took, in seconds, after one turn to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def synchronized(work: Callable[[], object], device: "torch.device | str") -> Callable[[], None]:
    """`work`, which is over when the device is done with it."""
    import torch

    on_gpu = torch.device(device).type == "cuda"

    def run() -> None:
        work()
        if on_gpu:
            torch.cuda.synchronize(device)

    return run


def describe(threads: int | None = None) -> str:
    """One line: date, processor with the instructions that matter here, GPU, threads, versions."""
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
    """Two lines above every table: the machine, and its limits."""
    return text(
        lang,
        "bench.machine",
        machine=describe(),
        read=number(ceilings.read_bytes_per_second / 1e9),
        flops=number(ceilings.flops_per_second / 1e9),
        dtype=ceilings.dtype,
    )


def matrix_instructions() -> list[str]:
    """The processor's instructions for multiplying matrices; empty where the system does not list them."""
    flags = _cpuinfo(r"^(?:flags|Features)\s*:\s*(.+)$")
    known = flags.split() if flags else []
    return [name for name in _INSTRUCTIONS if name in known]


def processor() -> str:
    """Its name, and how many there are."""
    count = len(re.findall(r"^processor\s*:", _CPUINFO.read_text(), re.MULTILINE)) if _CPUINFO.exists() else 0
    name = _cpuinfo(r"^model name\s*:\s*(.+)$") or platform.machine()
    return f"{name}, {count or '?'} CPU"


_CPUINFO = Path("/proc/cpuinfo")


def _cpuinfo(pattern: str) -> str:
    """A property of the first processor; empty on other systems than Linux."""
    if not _CPUINFO.exists():
        return ""
    found = re.search(pattern, _CPUINFO.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return found[1].strip() if found else ""
