"""`tracellm run --model NAME=PATH` for a real vLLM: its `EngineArgs` take the directory for the name.

vLLM looks for a model's files when the arguments of an engine are made (`EngineArgs.__post_init__`, when it is offline)
and when they become a configuration (`create_engine_config`), so that is where the name is replaced, and once more in
processes that vLLM's plugin (join.py) reaches only between the two. What the model is called stays its name.

vLLM: none; it has the option `--served-model-name`, which this fills in.
"""

import functools
from collections.abc import Callable
from typing import Any

from tracellm.engine.config.envs import models
from tracellm.probes.install.patcher import Patcher

__all__ = ["replace_models"]

Function = Callable[..., Any]

_CLASS = "vllm.engine.arg_utils:EngineArgs"
_NAMES = ("model", "tokenizer")


@functools.cache
def replace_models() -> None:
    """From here on, if TRACELLM_MODELS names any; a second call changes nothing."""
    if models():
        methods = ("__post_init__", "create_engine_config")
        Patcher({f"{_CLASS}.{method}": _first_replace for method in methods}, []).start()


def _first_replace(function: Function) -> Function:
    def outer(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = models()
        name = str(self.model)
        for field in _NAMES:
            value = getattr(self, field, None)
            if value is not None and str(value) in chosen:
                setattr(self, field, chosen[str(value)])
        if name in chosen and not self.served_model_name:
            self.served_model_name = name
        return function(self, *args, **kwargs)

    return outer
