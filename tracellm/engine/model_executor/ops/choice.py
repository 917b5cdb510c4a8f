"""Choice of the implementation of the operations, and with it of the attention backend.

`choose_ops` decides at start-up, in `EngineArgs.create_engine_config`, and stores name and reason in
`VllmConfig.ops_choice`. The model runner creates the implementation and builds the model `using_ops`: each layer keeps
the `current_ops` of its construction, and two engines of one process may differ.

vLLM: vllm/platforms/cuda.py::CudaPlatformBase.get_attn_backend_cls chooses for attention; each other operation chooses
by itself (vllm/model_executor/custom_op.py::CustomOp).
"""

import logging
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from tracellm.engine.config import envs
from tracellm.engine.config.errors import EngineError, did_you_mean
from tracellm.engine.config.vllm_config import OpsChoice
from tracellm.engine.model_executor.ops.cpu import native
from tracellm.engine.model_executor.ops.interface import Ops
from tracellm.engine.model_executor.ops.torch_ops import TorchOps

__all__ = ["NAMES", "OpsChoice", "choose_ops", "current_ops", "make_ops", "using_ops"]

logger = logging.getLogger(__name__)

NAMES = ("torch", "cpu", "triton")
"""Implementations: plain PyTorch, C++ kernels for a CPU, Triton kernels for a GPU."""


def choose_ops(attention_backend: str | None, device: torch.device) -> OpsChoice:
    """Return the implementation of the argument, else of `TRACELLM_OPS`, else the fastest on the device.

    Logs a warning if the device's fast kernels cannot be compiled.

    Args:
        attention_backend: the engine's argument, in any case, or None.
        device: device of the model.

    Raises:
        EngineError: the name is unknown, or the implementation cannot run here.
    """
    choice = _choose(attention_backend, device)
    if choice.name == "cpu":
        kernels = native.load()
        if kernels.library is None:
            logger.warning("PyTorch computes the layers, slower than kernels for this CPU would: %s", kernels.reason)
        return replace(choice, compile_seconds=kernels.compile_seconds)
    if choice.reason == "no_compiler":
        logger.warning("PyTorch computes the layers, slower than Triton's kernels would: %s", _missing_compiler())
    return choice


def _choose(attention_backend: str | None, device: torch.device) -> OpsChoice:
    if attention_backend is not None:
        return OpsChoice(_check(attention_backend, device, "LLM: `attention_backend`"), "argument")
    if variable := os.environ.get(envs.OPS):
        return OpsChoice(_check(variable, device, f"The environment variable {envs.OPS}"), "environment")
    if device.type != "cuda":
        return OpsChoice("cpu", "cpu" if native.load().library is not None else "cpu_uncompiled")
    if find_spec("triton") is None:
        return OpsChoice("torch", "no_triton")
    return OpsChoice("torch", "no_compiler") if _missing_compiler() else OpsChoice("triton", "gpu")


def _check(value: str, device: torch.device, setting: str) -> str:
    """Return the implementation's name in lower case if it can run on the device."""
    name = value.lower()
    if name not in NAMES:
        raise EngineError(f"{setting} must be one of {', '.join(NAMES)}, got {value!r}.{did_you_mean(name, NAMES)}")
    if name == "cpu" and device.type != "cpu":
        raise EngineError(f"{setting} asks for `cpu`, but the model runs on {device}: take `triton` or `torch` there.")
    if name == "triton":
        if find_spec("triton") is None:
            raise EngineError(
                f"{setting} asks for `triton`, but the package triton is not installed: "
                "`pip install 'tracellm[triton]'`, or take `torch`."
            )
        if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise EngineError(
                f"{setting} asks for `triton`, whose kernels need a GPU, but the model runs on {device}. "
                "Its interpreter runs them on the CPU, slowly: set the environment variable TRITON_INTERPRET=1. "
                "Or take `cpu`."
            )
        if device.type == "cuda" and (lacks := _missing_compiler()):
            raise EngineError(f"{setting} asks for `triton`, but {lacks}. Install it, or take `torch`.")
    return name


def _missing_compiler() -> str | None:
    """Return what Triton lacks to compile kernel launchers, or None if its C compiler is complete."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return None
    if not os.environ.get("CC") and not any(map(shutil.which, ("gcc", "clang"))):
        return "Triton finds no C compiler (gcc, clang, or what CC names)"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "Triton's C compiler finds no Python.h (python3-dev has it, or python3-devel)"
    return None


def make_ops(name: str) -> Ops:
    """Create the implementation of this name, importing only its libraries."""
    if name == "triton":
        from tracellm.engine.model_executor.ops.triton import TritonOps

        return TritonOps()
    if name == "cpu":
        from tracellm.engine.model_executor.ops.cpu_ops import CpuOps

        return CpuOps()
    return TorchOps()


_current: ContextVar[Ops | None] = ContextVar("ops", default=None)


@contextmanager
def using_ops(ops: Ops) -> Iterator[None]:
    """Give `ops` to all layers that are created in the `with` block."""
    token = _current.set(ops)
    try:
        yield
    finally:
        _current.reset(token)


def current_ops() -> Ops:
    """Return the operations for a layer under construction; outside of `using_ops`, `TorchOps`."""
    return _current.get() or TorchOps()
