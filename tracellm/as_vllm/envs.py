"""The environment variables of vLLM that the engine honours, read anew each time. vLLM: vllm/envs.py."""

from typing import Any

from tracellm.engine.config.envs import enable_v1_multiprocessing

__all__ = ["VLLM_ENABLE_V1_MULTIPROCESSING"]  # noqa: F822  # made by __getattr__


def __getattr__(name: str) -> Any:
    if name == "VLLM_ENABLE_V1_MULTIPROCESSING":
        return enable_v1_multiprocessing()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
