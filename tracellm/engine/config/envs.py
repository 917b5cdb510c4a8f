"""Environment variables of the engine, read when they are needed.

vLLM: vllm/envs.py, which has some two hundred, `VLLM_ENABLE_V1_MULTIPROCESSING` among them. `tracellm run --model` sets
`TRACELLM_MODELS`, which child processes inherit.
"""

import json
import os

from tracellm.engine.config.errors import EngineError

__all__ = [
    "MODELS",
    "OPS",
    "cpu_num_of_reserved_cpu",
    "enable_responses_api_store",
    "enable_v1_multiprocessing",
    "execute_model_timeout",
    "models",
]

MODELS = "TRACELLM_MODELS"
"""Name of the variable that replaces models; see `models`."""

OPS = "TRACELLM_OPS"
"""Name of the variable that selects the layers' operations, unless an argument does; see ops/choice.py."""


def enable_v1_multiprocessing() -> bool:
    """Return whether VLLM_ENABLE_V1_MULTIPROCESSING is 1: the engine core then runs in a process of its own.

    The default is 0; vLLM's is 1, so a plain `LLM()` has a `SyncMPClient` there.

    Raises:
        EngineError: the variable is neither 0 nor 1.
    """
    return _is_set("VLLM_ENABLE_V1_MULTIPROCESSING")


def enable_responses_api_store() -> bool:
    """Return whether VLLM_ENABLE_RESPONSES_API_STORE is 1: the server then keeps responses. The default is 0.

    Raises:
        EngineError: the variable is neither 0 nor 1.
    """
    return _is_set("VLLM_ENABLE_RESPONSES_API_STORE")


def _is_set(name: str) -> bool:
    value = os.environ.get(name, "0")
    if value not in ("0", "1"):
        raise EngineError(f"The environment variable {name} must be 0 or 1, it is {value!r}.")
    return value == "1"


def cpu_num_of_reserved_cpu() -> int | None:
    """Return VLLM_CPU_NUM_OF_RESERVED_CPU: cores that the engine core leaves to other work; None if it is not set.

    Raises:
        EngineError: it is not a number.
    """
    value = os.environ.get("VLLM_CPU_NUM_OF_RESERVED_CPU")
    if value is None or value.isdecimal():
        return None if value is None else int(value)
    raise EngineError(
        f"The environment variable VLLM_CPU_NUM_OF_RESERVED_CPU must be a number of cores, it is {value!r}."
    )


def execute_model_timeout() -> float:
    """Return VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: seconds that workers have for a step, 300 by default.

    Raises:
        EngineError: the variable is not a positive number.
    """
    value = os.environ.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "300")
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise EngineError(
            "The environment variable VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS must be a number of seconds above 0, it is "
            f"{value!r}."
        )
    return seconds


def models() -> dict[str, str]:
    """Return TRACELLM_MODELS: directories that replace models, by the models' names.

    Raises:
        EngineError: the variable is not a JSON object of strings.
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
