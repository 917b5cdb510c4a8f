"""Compiles the C++ kernels for this very CPU, once, and loads them.

    load() -> Kernels(library, "compiled for this CPU by /usr/bin/g++")   or   Kernels(None, "no C++ compiler ...")

At start-up: `make_ops("cpu")` -> `CpuOps` -> `load`. The first engine on a machine waits seconds for the compiler;
the library is kept in the user's cache under a name that says what it was made of (sources, compiler, flags, CPU),
so that a change of any makes it anew. The kernels work in PyTorch's own threads: they are linked with the OpenMP
library that torch has loaded, as a second set of threads would get in the way of the first.

vLLM: setup.py and cmake/cpu_extension.cmake, which build csrc/cpu beforehand.
"""

import ctypes
import hashlib
import logging
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

__all__ = ["CACHE", "COMPILER", "DTYPES", "AttentionShape", "Kernels", "load"]

logger = logging.getLogger(__name__)

COMPILER = "TRACELLM_CXX"
"""The environment variable that names the C++ compiler, or is empty: then there shall be none."""
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
"""What the kernels can compute in, and how their functions' names end then."""
_DTYPES_OF_WEIGHTS = (*DTYPES.values(), "f32_bf16", "f32_f16")
"""In what they can compute, and with what weights, where these have another dtype."""
CACHE = "TRACELLM_KERNEL_CACHE"
"""The environment variable that names the folder where compiled kernels are kept."""
_SOURCES = ("linear.cpp", "elementwise.cpp", "attention.cpp", "layers.cpp")
_HEADERS = ("vectors.h", "kernels.h")
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
# Not -ffast-math: it would hide NaN, and change the rounding of tiny numbers in the whole process.
_PATIENCE = 300.0
"""Seconds that the compiler may take; it needs 5, on a machine that does much else a minute."""
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels, or why there are none."""

    library: ctypes.CDLL | None
    reason: str
    """One clause for people."""


class AttentionShape(ctypes.Structure):
    """`Shape` of kernels.h; strides in numbers, window and cap 0 where there is none."""

    _fields_ = [
        *[
            (name, ctypes.c_int64)
            for name in (
                "sequences", "query_heads", "kv_heads", "size", "block_size", "table_stride", "query_token_stride",
                "query_head_stride", "window",
            )
        ],
        ("scale", ctypes.c_float),
        ("cap", ctypes.c_float),
    ]  # fmt: skip


@cache
def load() -> Kernels:
    """The kernels, compiled if need be; the same for the whole process."""
    if sys.platform != "linux":
        return Kernels(None, f"the kernels are compiled on Linux only, not on {sys.platform}")
    named = os.environ.get(COMPILER)
    compiler = shutil.which(named) if named is not None else shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        looked = f"no C++ compiler: {COMPILER} is {named!r}" if named is not None else "no C++ compiler (g++, clang++)"
        return Kernels(None, looked)
    try:
        openmp = _openmp_library()
        if openmp is None:
            return Kernels(None, "PyTorch uses no OpenMP here")
        return Kernels(_declared(ctypes.CDLL(_compiled(compiler, openmp))), f"compiled for this CPU by {compiler}")
    except subprocess.CalledProcessError as error:
        lines = [line for line in str(error.stderr).splitlines() if "error" in line] or str(error.stderr).splitlines()
        return Kernels(None, f"{compiler} cannot compile the kernels: {lines[0] if lines else error}")
    except subprocess.TimeoutExpired:
        return Kernels(None, f"{compiler} did not compile the kernels within {_PATIENCE:g} s")
    except OSError as error:
        return Kernels(None, f"the kernels cannot be kept or loaded: {error} ({CACHE} can name another folder)")


def _openmp_library() -> str | None:
    """The file of the OpenMP library in this process, which is torch's."""
    maps = os.fsdecode(_MAPS.read_bytes())  # lines that end with a file's path, in which blanks may be
    found = re.findall(r"/.*/lib(?:gomp|iomp5|omp)\b[^/\n]*\.so[^/\n]*$", maps, re.MULTILINE)
    torchs = str(Path(torch.__file__).parent)  # and torch.libs; other packages bring one, too, such as scikit-learn
    return next((path for path in found if path.startswith(torchs)), found[0] if found else None)


def _compiled(compiler: str, openmp: str) -> str:
    """The path of the library, which is compiled where it is not there yet.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
        subprocess.TimeoutExpired: it did not end.
        OSError: there is no folder to write to, or it is not the user's own.
    """
    here = Path(__file__).parent
    native = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    made_of = hashlib.sha256()
    for source in (*_HEADERS, *_SOURCES):
        made_of.update((here / source).read_bytes())
    made_of.update(repr([compiler, os.stat(compiler).st_mtime_ns, openmp, native, *_FLAGS, _cpu()]).encode())
    folder = _folder()
    library = folder / f"{made_of.hexdigest()[:24]}.so"
    if not library.exists():
        # A warning is seen without any setting: on a terminal somebody wonders why nothing happens.
        level = logging.WARNING if sys.stderr and sys.stderr.isatty() else logging.INFO
        logger.log(level, "Compiling the layers' kernels for this CPU, once: some seconds. They are kept in %s", folder)
        # Under a name of its own first: several processes may start at once, and one may be killed.
        with tempfile.TemporaryDirectory(dir=folder) as place:
            made = Path(place) / "kernels.so"
            command = [compiler, *_FLAGS, native, *(str(here / source) for source in _SOURCES), "-o", str(made), openmp]
            # In plain ASCII, whatever the user's language: `load` looks for the word "error".
            plain = {**os.environ, "LC_ALL": "C"}
            subprocess.run(
                command, check=True, capture_output=True, text=True, errors="replace", env=plain, timeout=_PATIENCE
            )
            made.replace(library)
    return str(library)


def _folder() -> Path:
    """Where compiled kernels are kept; nobody else may put a library there, since it is executed.

    Raises:
        OSError: it cannot be made, or others may write to it.
    """
    named = os.environ.get(CACHE) or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tracellm/kernels")
    try:
        folder = Path(named).expanduser()
    except RuntimeError as error:  # a user without a home folder
        raise FileNotFoundError(str(error)) from error
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        raise PermissionError(f"others may write to {folder}")
    return folder


def _cpu() -> str:
    """What the CPU can do: a home folder may be shared by machines that differ."""
    found = re.search(r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group() if found else platform.processor()


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library, its functions' parameters declared: addresses, sizes, and the number of threads at the end."""
    p, n, i, f = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
    library.layers_scratch_size.argtypes, library.layers_scratch_size.restype = [p, n], n
    library.reshape_and_cache.argtypes = [p] * 4 + [p] + [n] * 4
    for dtype in DTYPES.values():
        packed_size = getattr(library, f"packed_size_{dtype}")
        packed_size.argtypes, packed_size.restype = [n, n], n
        signatures = {
            "pack_weight": [p, p, n, n, i],
            "rms_norm": [p] * 3 + [n, n, f, i],
            "gemma_rms_norm": [p] * 3 + [n, n, f, i],
            "add_rms_norm": [p] * 5 + [n, n, f, i],
            "silu_and_mul": [p] * 2 + [n, n, i],
            "gelu_tanh_and_mul": [p] * 2 + [n, n, i],
            "rotary": [p] * 6 + [n] * 8 + [i],
            "paged_attention": [p] * 7 + [ctypes.POINTER(AttentionShape), i],
        }
        for name, parameters in signatures.items():
            function = getattr(library, f"{name}_{dtype}")
            function.argtypes, function.restype = parameters, None
    for dtypes in _DTYPES_OF_WEIGHTS:
        for name, parameters in {"linear": [p] * 4 + [n] * 3 + [i], "decoder_layers": [p, n] + [p] * 4 + [i]}.items():
            function = getattr(library, f"{name}_{dtypes}")
            function.argtypes, function.restype = parameters, None
    library.reshape_and_cache.restype = None
    return library
