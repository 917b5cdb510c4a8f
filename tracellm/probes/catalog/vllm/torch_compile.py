"""Removes probes from the parts of a model that vLLM compiles with torch.compile.

torch.compile reads the code of what it compiles, and vLLM demands that all of it can be compiled and that it stays as
it was read: a probe in there would be compiled along, or stop it, or stand where compiled code is to be put. So as soon
as a worker learns that its model is to be compiled, the probes of layers and operations are taken off again, before
the model is there. What is around it is recorded as ever: the forward pass as a whole, and the logits.

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
"""CompilationMode: not at all, and the whole model by torch.compile alone; else its inner part, by vLLM's backend."""


def is_inside(entry: Entry, mode: int = _STOCK) -> bool:
    """Is the entry about something that is compiled, or is called by that, in this CompilationMode?"""
    path = path_of(entry.target)
    if path == _WHOLE:
        return mode == _STOCK
    return path not in _AROUND and entry.target.startswith(_INSIDE)


def is_compiled() -> bool:
    """Was a model compiled in this process already?"""
    counter = sys.modules.get("vllm.compilation.counter")
    return counter is not None and counter.compilation_counter.num_models_seen > 0


def _mode(vllm_config: Any) -> int:
    """The CompilationMode that is configured; _STOCK where that cannot be read."""
    try:
        config = vllm_config.compilation_config
        return int(getattr(config, "mode", getattr(config, "level", _NONE)) or _NONE)  # before 0.11.1 a level
    except Exception:  # whatever another version has there must not break its run
        return _STOCK


def compile_patches(
    leave: Callable[[Callable[[Entry], bool]], None],
) -> dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """The patch that calls `leave(which entries)` when a worker is made whose model is to be compiled (patcher.py)."""

    def make(init: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
            if (mode := _mode(vllm_config)) != _NONE:
                leave(lambda entry: is_inside(entry, mode))
            init(self, vllm_config, *args, **kwargs)

        return __init__

    return {"vllm.v1.worker.worker_base:WorkerBase.__init__": make}
