"""What the engine says when it was asked for something it cannot do.

Every refusal that a person can cause is an `EngineError`: one message that says what is wrong, where, and what to do.
So a caller (the command line, a notebook, a script) prints the message and needs no traceback. An error of any other
class is a fault of tracellm itself.

vLLM raises bare `ValueError`s for the same mistakes; `EngineError` is one, so code written for vLLM still catches it.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "EngineError",
    "InvalidRequestError",
    "ModelLoadError",
    "did_you_mean",
    "first_line",
    "in_words",
    "unknown_name",
]


class EngineError(ValueError):
    """A user's mistake; the message says what is wrong, where, and what to do."""


class InvalidRequestError(EngineError):
    """A prompt or sampling parameters that cannot be served. The engine is untouched and can be used again."""


class ModelLoadError(EngineError):
    """A model, tokenizer or weight file that is missing, damaged or of a kind that tracellm does not run."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that `name` looks like, as a question to append to a message; empty when none comes near.

    >>> did_you_mean("temprature", ["temperature", "top_p"])
    ' Did you mean `temperature`?'
    """
    close = get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean `{close[0]}`?" if close else ""


def unknown_name(owner: str, kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that `owner` does not have, with the one that was meant and all that there are.

    >>> unknown_name("SamplingParams", "parameter", "temprature", ["temperature", "top_p"])
    'SamplingParams has no parameter `temprature`. Did you mean `temperature`? It takes: temperature, top_p.'
    """
    known = list(known)
    return f"{owner} has no {kind} `{name}`.{did_you_mean(name, known)} It takes: {', '.join(known)}."


def first_line(error: BaseException) -> str:
    """What a library's error says first, without a full stop: a message of many lines is no part of another."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def in_words(error: BaseException) -> str:
    """An error as its reader in another process will see it: of an `EngineError` the message alone."""
    return str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
