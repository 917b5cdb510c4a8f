"""Why a request of the asynchronous engine cannot go on: its engine has died, or it alone has failed.

`AsyncLLM.generate` raises one of the two. After an `EngineDeadError` every other request of this engine raises it too;
after an `EngineGenerateError` the engine goes on.

vLLM: vllm/v1/engine/exceptions.py. There neither is an `EngineError`; here they are, so that one `except` catches all
that an engine has to say.
"""

from tracellm.engine.config.errors import EngineError

__all__ = ["EngineDeadError", "EngineGenerateError"]


class EngineGenerateError(EngineError):
    """One request has failed while it was generated. The engine can be used again."""


class EngineDeadError(EngineError):
    """The engine core has died, and with it every request. Make a new engine."""

    ENGINE_DEAD_MESSAGE = (
        "The engine core has died, so no request can go on. Its own error, if it could still say one, is printed "
        "above. Make a new engine."
    )

    def __init__(self, message: str = ENGINE_DEAD_MESSAGE, *, suppress_context: bool = False) -> None:
        """Say what ended the engine core, where it is known.

        Args:
            message: what is shown; a sentence that says only that it died when none is given.
            suppress_context: do not show the error during which this one was raised: the end of a socket, say, which is
                only how the death was noticed and tells a reader nothing.
        """
        super().__init__(message)
        self.__suppress_context__ = suppress_context
