"""Compiles the C++ kernels for this CPU, once per machine, and loads them.

    load() -> Kernels(library, "compiled for this CPU by /usr/bin/g++")   or   Kernels(None, "no C++ compiler ...")

At start-up: `choose_ops` -> `load`. The first engine on a machine waits seconds for the compiler. The library stays in
the user's cache, named by a hash of sources, compiler, flags and CPU. The kernels use PyTorch's threads: they are
linked with the OpenMP library that torch has loaded, since two thread pools would compete.

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
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

__all__ = ["CACHE", "COMPILER", "DTYPES", "AttentionShape", "Kernels", "load"]

logger = logging.getLogger(__name__)

COMPILER = "TRACELLM_CXX"
"""Environment variable with the C++ compiler; empty: compile nothing."""
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
"""Dtypes of the kernels, with the suffixes of their functions."""
_WEIGHT_DTYPES = (*DTYPES.values(), "f32_bf16", "f32_f16")
"""Suffixes of the functions that take weights; the second part is the weights' dtype if it differs."""
CACHE = "TRACELLM_KERNEL_CACHE"
"""Environment variable with the folder of compiled kernels."""
_SOURCES = ("linear.cpp", "elementwise.cpp", "attention.cpp", "layers.cpp")
_HEADERS = ("vectors.h", "kernels.h")
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
# Not -ffast-math: it would hide NaN, and flush denormals in the whole process.
_TIMEOUT = 300.0
"""Seconds that the compiler may take; it needs 5, or up to 60 on a busy machine."""
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True)
class Kernels:
    """Compiled kernels, or the reason why there are none."""

    library: ctypes.CDLL | None
    reason: str
    """Clause for people: who compiled them, or what is missing."""
    compile_seconds: float = 0.0
    """Time that this process waited for the compiler; 0 if the library was in the cache."""


class AttentionShape(ctypes.Structure):
    """`Shape` of kernels.h. Strides count elements; window and cap are 0 where there is none."""

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
    """Return the kernels, compiled if necessary; the same object for the whole process."""
    if sys.platform != "linux":
        return Kernels(None, f"the kernels are compiled on Linux only, not on {sys.platform}")
    setting = os.environ.get(COMPILER)
    compiler = shutil.which(setting) if setting is not None else shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        reason = (
            f"no C++ compiler: {COMPILER} is {setting!r}" if setting is not None else "no C++ compiler (g++, clang++)"
        )
        return Kernels(None, reason)
    try:
        openmp = _openmp_library()
        if openmp is None:
            return Kernels(None, "PyTorch uses no OpenMP here")
        path, seconds = _compile(compiler, openmp)
        return Kernels(_declare(ctypes.CDLL(path)), f"compiled for this CPU by {compiler}", seconds)
    except subprocess.CalledProcessError as error:
        lines = [line for line in str(error.stderr).splitlines() if "error" in line] or str(error.stderr).splitlines()
        return Kernels(None, f"{compiler} cannot compile the kernels: {lines[0] if lines else error}")
    except subprocess.TimeoutExpired:
        return Kernels(None, f"{compiler} did not compile the kernels within {_TIMEOUT:g} s")
    except OSError as error:
        return Kernels(None, f"the kernels cannot be kept or loaded: {error} ({CACHE} can name another folder)")


def _openmp_library() -> str | None:
    """Return the path of the OpenMP library that torch has loaded, or None."""
    maps = os.fsdecode(_MAPS.read_bytes())  # each line ends with a path, which may hold blanks
    found = re.findall(r"/.*/lib(?:gomp|iomp5|omp)\b[^/\n]*\.so[^/\n]*$", maps, re.MULTILINE)
    torch_folder = str(Path(torch.__file__).parent)  # or torch.libs; packages such as scikit-learn have their own
    return next((path for path in found if path.startswith(torch_folder)), found[0] if found else None)


def _compile(compiler: str, openmp: str) -> tuple[str, float]:
    """Return the path of the library and the seconds of compiling it, 0 if it was in the cache.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
        subprocess.TimeoutExpired: the compiler took too long.
        OSError: the cache folder cannot be written, or others may write to it.
    """
    sources = Path(__file__).parent
    native = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
    digest = hashlib.sha256()
    for source in (*_HEADERS, *_SOURCES):
        digest.update((sources / source).read_bytes())
    digest.update(repr([compiler, os.stat(compiler).st_mtime_ns, openmp, native, *_FLAGS, _cpu()]).encode())
    folder = _folder()
    library = folder / f"{digest.hexdigest()[:24]}.so"
    if library.exists():
        return str(library), 0.0
    start = time.perf_counter()
    # On a terminal, a warning: it is shown without any logging configuration.
    level = logging.WARNING if sys.stderr and sys.stderr.isatty() else logging.INFO
    logger.log(level, "Compiling the layers' kernels for this CPU, once: some seconds. They are kept in %s", folder)
    # Compile to a temporary name: several processes may start at once, and one may be killed.
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        output = Path(temporary) / "kernels.so"
        command = [
            compiler,
            *_FLAGS,
            native,
            *(str(sources / source) for source in _SOURCES),
            "-o",
            str(output),
            openmp,
        ]
        english = {**os.environ, "LC_ALL": "C"}  # `load` searches the messages for "error"
        subprocess.run(
            command, check=True, capture_output=True, text=True, errors="replace", env=english, timeout=_TIMEOUT
        )
        output.replace(library)
    return str(library), time.perf_counter() - start


def _folder() -> Path:
    """Return the cache folder; only the user may write to it, since its libraries are executed.

    Raises:
        OSError: the folder cannot be created, or others may write to it.
    """
    path = os.environ.get(CACHE) or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tracellm/kernels")
    try:
        folder = Path(path).expanduser()
    except RuntimeError as error:  # a user without a home folder
        raise FileNotFoundError(str(error)) from error
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        raise PermissionError(f"others may write to {folder}")
    return folder


def _cpu() -> str:
    """Return the CPU's instruction sets: machines that share a home folder may differ in them."""
    found = re.search(r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group() if found else platform.processor()


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the parameters of the library's functions: addresses, sizes, and at the end the number of threads."""
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
    for dtypes in _WEIGHT_DTYPES:
        for name, parameters in {"linear": [p] * 4 + [n] * 3 + [i], "decoder_layers": [p, n] + [p] * 4 + [i]}.items():
            function = getattr(library, f"{name}_{dtypes}")
            function.argtypes, function.restype = parameters, None
    library.reshape_and_cache.restype = None
    return library
