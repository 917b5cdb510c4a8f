"""Messages that a real vLLM 0.11.1 has encoded are read here, and those of the engine core are the same bytes."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.clients.vllm_messages import frames_of, message_of, recorded
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, UtilityResult
from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder

TYPES = {"request": EngineCoreRequest, "outputs": EngineCoreOutputs}


def plain(value: Any) -> Any:
    """Something that can be compared: arrays as lists with their type."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return type(value).__name__, str(value.dtype), value.tolist()
    if isinstance(value, UtilityResult):
        return plain(value.result)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "__struct_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


@pytest.mark.parametrize("message", recorded(), ids=lambda message: f"{message['kind']}{message['number']}")
def test_what_vllm_has_encoded_is_read(message):
    """Decoded here, its bytes are the message with the values that vLLM was given."""
    decoded = MsgpackDecoder(TYPES[message["kind"]]).decode(frames_of(message))
    assert plain(decoded) == plain(message_of(message))


@pytest.mark.parametrize("message", [m for m in recorded() if m["kind"] == "outputs"], ids=lambda m: str(m["number"]))
def test_outputs_are_the_bytes_that_vllm_makes(message):
    """Frame by frame; of a request the parameters differ, as vLLM leaves out those with their default."""
    encoded = [bytes(frame) for frame in MsgpackEncoder().encode(message_of(message))]
    assert encoded == frames_of(message)
