"""What comes to the engine core through its input socket: messages decoded and checked, before anyone acts on them.

`EngineCoreProc.process_input_sockets` decodes each message with it. What is no message is refused by an `EngineError`,
which is told on stderr, and the engine core goes on: one that a client got wrong must not end the requests of others.

vLLM: in EngineCoreProc.process_input_sockets, where such a message ends the thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import zmq

from tracellm.engine.config.errors import EngineError, first_line
from tracellm.engine.ipc.messages import EngineCoreRequest, EngineCoreRequestType
from tracellm.engine.ipc.serial_utils import MsgpackDecoder

__all__ = ["InputDecoder"]

_FORMS: dict[EngineCoreRequestType, Any] = {
    EngineCoreRequestType.ABORT: list[str],
    EngineCoreRequestType.UTILITY: tuple[int, int, str, list[Any]],
}
"""What the messages hold that clients send, those with requests apart."""


class InputDecoder:
    """Decodes messages to the engine core. One thread at a time."""

    def __init__(self, num_clients: int) -> None:
        """Of `num_clients` clients, whose numbers stand in messages."""
        self.num_clients = num_clients
        self._requests = MsgpackDecoder(EngineCoreRequest)
        self._generic = MsgpackDecoder()

    def decode(self, frames: Sequence[zmq.Frame]) -> tuple[EngineCoreRequestType, Any]:
        """What the message is about, and what it holds: for ADD an `EngineCoreRequest`.

        Raises:
            EngineError: it is no message that a client sends.
        """
        type_frame, *data_frames = frames
        kind = bytes(type_frame.buffer)
        is_add = kind == EngineCoreRequestType.ADD.value
        if not data_frames or not (is_add or any(kind == form.value for form in _FORMS)):
            raise EngineError(f"the first of its {len(frames)} frames, {kind[:16]!r}, is no type of message with data")
        request_type = EngineCoreRequestType(kind)
        if is_add:
            request: EngineCoreRequest = self._requests.decode(data_frames)
            self._check_client(request.client_index)
            return request_type, request
        try:
            message = msgspec.convert(self._generic.decode(data_frames), _FORMS[request_type])
        except msgspec.ValidationError as error:
            raise EngineError(f"{request_type.name} does not hold what it should: {first_line(error)}") from None
        if request_type is EngineCoreRequestType.UTILITY:
            self._check_client(message[0])
        return request_type, message

    def _check_client(self, client_index: int) -> None:
        if not 0 <= client_index < self.num_clients:
            raise EngineError(f"it is said to come from client {client_index}, of {self.num_clients}")
