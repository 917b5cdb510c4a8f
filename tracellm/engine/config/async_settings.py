"""The two ways to make an `AsyncLLM`, brought together.

vLLM: none; there is one way, and `AsyncLLM(model=...)`, as documents write it, fails.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import VllmConfig

if TYPE_CHECKING:
    from tracellm.engine.executor.abstract import Executor

__all__ = ["settle"]


def settle(
    vllm_config: VllmConfig | str | os.PathLike[str] | None,
    executor_class: type[Executor] | None,
    log_stats: bool | None,
    engine_args: dict[str, Any],
) -> tuple[VllmConfig, bool]:
    """The settings, and whether to keep statistics, from either form of `AsyncLLM(...)`.

    Raises:
        EngineError: the two are mixed, or a setting is refused.
    """
    if isinstance(vllm_config, VllmConfig):
        if engine_args:
            raise EngineError(
                f"AsyncLLM: a VllmConfig settles everything, so it goes without `{next(iter(engine_args))}`. Give "
                "either a VllmConfig, or a model with its arguments."
            )
        return vllm_config, log_stats is not False
    if executor_class is not None or log_stats is not None:
        raise EngineError(
            "AsyncLLM: `executor_class` and `log_stats` go with a VllmConfig. With a model, leave the first out, and "
            "use `disable_log_stats` for the second."
        )
    if vllm_config is not None:
        if "model" in engine_args:
            raise EngineError(f"AsyncLLM: got two models, {vllm_config!r} and {engine_args['model']!r}.")
        engine_args = {"model": vllm_config, **engine_args}
    args = EngineArgs.from_arguments(**{"disable_log_stats": False, **engine_args})
    return args.create_engine_config("ENGINE_CONTEXT"), not args.disable_log_stats
