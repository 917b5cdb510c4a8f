"""Exceptions of the engine, and helpers that word their messages.

Every error a user can cause is an `EngineError`. Its message explains what is wrong, where, and what to do, and is
printed without a traceback. An exception of any other class is a bug in tracellm.

vLLM raises plain `ValueError`s for the same mistakes. `EngineError` subclasses it, so code written for vLLM catches it.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "EngineDeadError",
    "EngineError",
    "EngineGenerateError",
    "InvalidRequestError",
    "MalformedRequestError",
    "ModelLoadError",
    "did_you_mean",
    "first_line",
    "format_error",
    "shorten",
    "unknown_name",
]


class EngineError(ValueError):
    """A user's mistake; the message explains what is wrong and what to do."""


class InvalidRequestError(EngineError):
    """A prompt or sampling parameters that cannot be served. The engine can be used again."""


class MalformedRequestError(InvalidRequestError):
    """A request of the wrong form, such as a message without a role. vLLM's server refuses it before its handlers."""


class ModelLoadError(EngineError):
    """A model, tokenizer or weight file that is missing, damaged or unsupported."""


class EngineGenerateError(EngineError):
    """Failure of a single request while generating; the engine can be used again.

    vLLM: vllm/v1/engine/exceptions.py::EngineGenerateError, which is no `ValueError`.
    """


class EngineDeadError(EngineError):
    """Death of the engine core, and of all requests with it. Make a new engine.

    vLLM: vllm/v1/engine/exceptions.py::EngineDeadError, which is no `ValueError`.
    """

    ENGINE_DEAD_MESSAGE = (
        "The engine core has died, and all requests with it. Its own error, if it could print one, is above. "
        "Make a new engine."
    )

    def __init__(self, message: str = ENGINE_DEAD_MESSAGE, *, suppress_context: bool = False) -> None:
        """Create the error.

        Args:
            message: why the engine core died; by default only that it did.
            suppress_context: hide the exception being handled, such as a closed socket that only revealed the death.
        """
        super().__init__(message)
        self.__suppress_context__ = suppress_context


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint naming the known name closest to `name`, to append to a message; empty when none is close.

    >>> did_you_mean("temprature", ["temperature", "top_p"])
    ' Did you mean `temperature`?'
    """
    close = get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean `{close[0]}`?" if close else ""


def unknown_name(owner: str, kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that `owner` does not have, with a hint and the accepted names.

    >>> unknown_name("SamplingParams", "parameter", "temprature", ["temperature", "top_p"])
    'SamplingParams has no parameter `temprature`. Did you mean `temperature`? It takes: temperature, top_p.'
    """
    known = list(known)
    return f"{owner} has no {kind} `{name}`.{did_you_mean(name, known)} It takes: {', '.join(known)}."


def first_line(error: BaseException) -> str:
    """Return the first line of a library's message, without the full stop, to quote inside another message."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def shorten(value: object, limit: int = 60) -> str:
    """Return the beginning of a value's repr, without converting all of a large value.

    >>> shorten(list(range(100)))
    'a list of 100'
    """
    if isinstance(value, (str, bytes)):
        value = value[: limit + 1]
    elif isinstance(value, (list, tuple, set, dict)) and len(value) > limit:
        return f"a {type(value).__name__} of {len(value)}"
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python converts
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def format_error(error: BaseException) -> str:
    """Return an exception as text for another process: an `EngineError`'s message, or class name and message."""
    return str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
