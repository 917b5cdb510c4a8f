"""`EngineArgs` and `AsyncEngineArgs` as scripts for vLLM make them: with any of vLLM's arguments, and vLLM's defaults.

Arguments for what tracellm does not have are accepted as long as they ask for nothing, and otherwise refused by name,
as `LLM(...)` does. vLLM: vllm/engine/arg_utils.py.
"""

import os
from typing import Any

from tracellm.engine.config import arg_utils
from tracellm.engine.config.hf_config import BUNDLED_MODEL

__all__ = ["AsyncEngineArgs", "EngineArgs"]


class EngineArgs(arg_utils.EngineArgs):
    """The arguments of an engine, which keeps statistics unless it is told otherwise.

    Raises:
        EngineError: an unknown name, a feature of vLLM that is not here, or a value that is not accepted.
    """

    def __init__(
        self, model: str | os.PathLike[str] = BUNDLED_MODEL, *, disable_log_stats: bool = False, **arguments: Any
    ) -> None:
        checked = arg_utils.EngineArgs.from_arguments(model=model, disable_log_stats=disable_log_stats, **arguments)
        vars(self).update(vars(checked))


class AsyncEngineArgs(arg_utils.AsyncEngineArgs):
    """The arguments of an `AsyncLLM`; with `enable_log_requests` it logs each request.

    Raises:
        EngineError: as for `EngineArgs`.
    """

    def __init__(self, model: str | os.PathLike[str] = BUNDLED_MODEL, **arguments: Any) -> None:
        vars(self).update(vars(arg_utils.AsyncEngineArgs.from_arguments(model=model, **arguments)))
