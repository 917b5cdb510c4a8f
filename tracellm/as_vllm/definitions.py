"""Names of vLLM that scripts use, but not tracellm's engine: arguments, prompt types, an environment variable.

`table.py` lists the modules of vLLM in which scripts find them.

vLLM: vllm/engine/arg_utils.py, vllm/inputs/data.py (without images, embeddings and cache salts), vllm/envs.py
"""

import os
from typing import Any, NotRequired, TypedDict

from tracellm.engine.config import arg_utils
from tracellm.engine.config.envs import enable_v1_multiprocessing
from tracellm.engine.config.hf_config import BUNDLED_MODEL

__all__ = [
    "VLLM_ENABLE_V1_MULTIPROCESSING",  # noqa: F822  # made by __getattr__
    "AsyncEngineArgs",
    "EngineArgs",
    "TextPrompt",
    "TokensPrompt",
]


class EngineArgs(arg_utils.EngineArgs):
    """Arguments of an engine, with vLLM's defaults. Those that tracellm lacks are accepted if they change nothing.

    Raises:
        EngineError: an unknown name, an unsupported feature of vLLM, or a wrong value.
    """

    def __init__(
        self, model: str | os.PathLike[str] = BUNDLED_MODEL, *, disable_log_stats: bool = False, **arguments: Any
    ) -> None:
        checked = arg_utils.EngineArgs.from_arguments(model=model, disable_log_stats=disable_log_stats, **arguments)
        vars(self).update(vars(checked))


class AsyncEngineArgs(arg_utils.AsyncEngineArgs):
    """Arguments of an `AsyncLLM`; with `enable_log_requests` it logs each request.

    Raises:
        EngineError: as for `EngineArgs`.
    """

    def __init__(self, model: str | os.PathLike[str] = BUNDLED_MODEL, **arguments: Any) -> None:
        vars(self).update(vars(arg_utils.AsyncEngineArgs.from_arguments(model=model, **arguments)))


class TextPrompt(TypedDict):
    """A prompt as text, which the engine tokenizes."""

    prompt: str


class TokensPrompt(TypedDict):
    """A prompt as token ids, optionally with its text."""

    prompt_token_ids: list[int]
    prompt: NotRequired[str]


def __getattr__(name: str) -> Any:
    """Return the environment variable's current value."""
    if name == "VLLM_ENABLE_V1_MULTIPROCESSING":
        return enable_v1_multiprocessing()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
