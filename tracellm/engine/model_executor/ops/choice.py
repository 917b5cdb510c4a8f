"""Which implementation of the operations an engine uses, why that one, and how it reaches the layers.

`choose_ops` decides at start-up, in `EngineArgs.create_engine_config`, and says why; what it decided is part of the
configuration (`VllmConfig.ops_choice`). The model runner makes the implementation and builds the model `using_ops`:
each layer keeps what `current_ops` gives while it is made, so that two engines of one process may differ.

vLLM: vllm/attention/selector.py::get_attn_backend and vllm/platforms/cuda.py::get_attn_backend_cls, which choose for
attention only; there each operation of the others chooses by itself (vllm/model_executor/custom_op.py::CustomOp).
"""

import logging
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
"""The implementations: plain PyTorch, the fast one for a CPU, Triton kernels."""


def choose_ops(asked: str | None, device: torch.device) -> OpsChoice:
    """What the argument says, else what `TRACELLM_OPS` says, else what is best on the device; and that as a reason.

    Where the fast kernels of the device cannot be compiled, a warning says why.

    Args:
        asked: the argument `attention_backend`, in capitals or not; None: it was not given.
        device: where the model will run.

    Raises:
        EngineError: no implementation has this name, or it cannot run here; the message says who asked for it.
    """
    choice = _chosen(asked, device)
    if choice.name == "cpu" and (kernels := native.load()).library is None:
        logger.warning("PyTorch computes the layers, slower than kernels for this CPU would: %s", kernels.reason)
    elif choice.reason == "no_compiler":
        logger.warning("PyTorch computes the layers, slower than Triton's kernels would: %s", _why_uncompiled())
    return choice


def _chosen(asked: str | None, device: torch.device) -> OpsChoice:
    if asked is not None:
        return OpsChoice(_checked(asked, device, "LLM: `attention_backend`"), "argument")
    if variable := os.environ.get(envs.OPS):
        return OpsChoice(_checked(variable, device, f"The environment variable {envs.OPS}"), "environment")
    if device.type != "cuda":
        return OpsChoice("cpu", "cpu" if native.load().library is not None else "cpu_uncompiled")
    if find_spec("triton") is None:
        return OpsChoice("torch", "no_triton")
    return OpsChoice("torch", "no_compiler") if _why_uncompiled() else OpsChoice("triton", "gpu")


def _checked(asked: str, device: torch.device, who: str) -> str:
    """The implementation that is called so, if it can run on the device."""
    name = asked.lower()
    if name not in NAMES:
        raise EngineError(f"{who} must be one of {', '.join(NAMES)}, got {asked!r}.{did_you_mean(name, NAMES)}")
    if name == "cpu" and device.type != "cpu":
        raise EngineError(f"{who} asks for `cpu`, but the model runs on {device}: take `triton` or `torch` there.")
    if name == "triton":
        if find_spec("triton") is None:
            raise EngineError(
                f"{who} asks for `triton`, but the package triton is not installed: `pip install 'tracellm[triton]'`, "
                "or take `torch`."
            )
        if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise EngineError(
                f"{who} asks for `triton`, whose kernels need a GPU, but the model runs on {device}. Its interpreter "
                "runs them on the CPU, slowly: set the environment variable TRITON_INTERPRET=1. Or take `cpu`."
            )
        if device.type == "cuda" and (lacks := _why_uncompiled()):
            raise EngineError(f"{who} asks for `triton`, but {lacks}. Install it, or take `torch`.")
    return name


def _why_uncompiled() -> str | None:
    """What Triton cannot do without where it starts a kernel on a GPU: a C compiler. None: there is one."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return None
    if not os.environ.get("CC") and not any(map(shutil.which, ("gcc", "clang"))):
        return "Triton finds no C compiler (gcc, clang, or what CC names)"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "Triton's C compiler finds no Python.h (python3-dev has it, or python3-devel)"
    return None


def make_ops(name: str) -> Ops:
    """The implementation of this name; its libraries are imported only now."""
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
    """Layers that are made within the `with` block keep `ops`, and use it for good."""
    token = _current.set(ops)
    try:
        yield
    finally:
        _current.reset(token)


def current_ops() -> Ops:
    """What a layer that is being made shall use; outside of `using_ops` the reference, `TorchOps`."""
    return _current.get() or TorchOps()
