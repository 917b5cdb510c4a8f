"""Removal of probes from the parts of a model that vLLM compiles with torch.compile.

vLLM requires that all code inside can be compiled and does not change. A probe would be compiled too, break the
compilation, or occupy the place of compiled code. When a worker with a compiled model is made, the probes of layers and
operations are removed, before the model exists; the forward pass as a whole and the logits stay recorded.

vLLM: vllm/compilation/, vllm/config/compilation.py::CompilationMode.
"""

import sys
from collections.abc import Callable
from typing import Any

from tracellm.probes.wrapping.probe import Entry, path_of

__all__ = ["compile_patches", "is_compiled", "is_inside"]

_INSIDE = (
    "vllm.model_executor.models.",
    "vllm.model_executor.layers.",
    "vllm.model_executor.custom_op:",
    "vllm.attention.",
    "vllm.v1.attention.",
    "vllm._custom_ops:",
)
_AROUND = ("*ForCausalLM.__init__", "*ForCausalLM.load_weights", "*Model.__init__", "*ForCausalLM.compute_logits")
_WHOLE = "*ForCausalLM.forward"
_NONE, _STOCK = 0, 1
"""CompilationMode without compilation, and of a whole model by torch.compile alone; the others compile its inner part
by vLLM's backend."""


def is_inside(entry: Entry, mode: int = _STOCK) -> bool:
    """Return whether the entry's function is compiled, or called by compiled code, in this CompilationMode."""
    path = path_of(entry.target)
    if path == _WHOLE:
        return mode == _STOCK
    return path not in _AROUND and entry.target.startswith(_INSIDE)


def is_compiled() -> bool:
    """Return whether this process has compiled a model."""
    counter = sys.modules.get("vllm.compilation.counter")
    return counter is not None and counter.compilation_counter.num_models_seen > 0


def _mode(vllm_config: Any) -> int:
    """Return the configured CompilationMode; _STOCK if it cannot be read."""
    try:
        config = vllm_config.compilation_config
        return int(getattr(config, "mode", getattr(config, "level", _NONE)) or _NONE)  # before 0.11.1 a level
    except Exception:  # an unknown version must not fail because of this
        return _STOCK


def compile_patches(
    remove: Callable[[Callable[[Entry], bool]], None],
) -> dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Return the patch (patcher.py) that calls `remove(which entries)` when a worker with a compiled model is made."""

    def make(init: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
            if (mode := _mode(vllm_config)) != _NONE:
                remove(lambda entry: is_inside(entry, mode))
            init(self, vllm_config, *args, **kwargs)

        return __init__

    return {"vllm.v1.worker.worker_base:WorkerBase.__init__": make}
