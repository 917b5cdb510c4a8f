"""The environment variables that the engine reads, each a function so that it is read when it is needed.

vLLM: vllm/envs.py, which has some two hundred; its `VLLM_ENABLE_V1_MULTIPROCESSING` is the one that both honour.
`TRACELLM_MODELS` is what `tracellm run --model` sets, for the processes too that a script starts.
"""

import json
import os

from tracellm.engine.config.errors import EngineError

__all__ = ["MODELS", "OPS", "enable_v1_multiprocessing", "models"]

MODELS = "TRACELLM_MODELS"
"""The name of the variable."""

OPS = "TRACELLM_OPS"
"""Which implementation of the layers' operations to use, unless an argument says so; see ops/choice.py."""


def enable_v1_multiprocessing() -> bool:
    """`VLLM_ENABLE_V1_MULTIPROCESSING`: does the engine core run in a process of its own? 0 (the default) or 1.

    Mind the difference: a real vLLM 0.11 or later defaults to 1, so a plain `LLM()` there is a `SyncMPClient`.

    Raises:
        EngineError: the variable holds neither 0 nor 1.
    """
    value = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    if value not in ("0", "1"):
        raise EngineError(f"The environment variable VLLM_ENABLE_V1_MULTIPROCESSING must be 0 or 1, it is {value!r}.")
    return value == "1"


def models() -> dict[str, str]:
    """`TRACELLM_MODELS`: for names of models the directories to take instead; none by default.

    Raises:
        EngineError: the variable does not hold a JSON object of texts.
    """
    value = os.environ.get(MODELS, "{}")
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(path, str) and path for path in found.values()):
        raise EngineError(
            f'The environment variable {MODELS} must be a JSON object, {{"name of a model": "its directory"}}, '
            f"it is {value!r}."
        )
    return found
