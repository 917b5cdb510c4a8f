"""Keyword arguments that a method of `LLM` does not have: one message, with the name that was meant.

vLLM: none; there Python's own TypeError says it.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tracellm.engine.config.errors import InvalidRequestError, unknown_name

__all__ = ["refuse_unknown"]

_OF_VLLM = (
    "lora_request",
    "mm_processor_kwargs",
    "tokenization_kwargs",
    "data_parallel_rank",
)  # for what tracellm does not have; None asks for nothing


def refuse_unknown(method: Callable[..., Any], unknown: Mapping[str, Any]) -> None:
    """Refuse what `method` caught in its `**unknown`.

    Raises:
        InvalidRequestError: names the argument, and those that the method takes.
    """
    for name, value in unknown.items():
        if name in _OF_VLLM:
            if value is None:
                continue
            raise InvalidRequestError(
                f"{method.__name__}: tracellm does not have `{name}`, which vLLM has: leave it out. Got {value!r}, "
                "only None is accepted."
            )
        parameters = inspect.signature(method).parameters.values()
        known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
        raise InvalidRequestError(unknown_name(method.__name__, "argument", name, known))
