"""Tests of messages against vLLM 0.11.1: its bytes are read here, and ours are the same bytes."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.clients.vllm_messages import frames_of, message_of, recorded
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, UtilityResult
from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder

TYPES = {"request": EngineCoreRequest, "outputs": EngineCoreOutputs}


def plain(value: Any) -> Any:
    """Convert a message to comparable values; arrays become lists with their dtype."""
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
    """A message encoded by vLLM decodes to the values that vLLM encoded."""
    decoded = MsgpackDecoder(TYPES[message["kind"]]).decode(frames_of(message))
    assert plain(decoded) == plain(message_of(message))


@pytest.mark.parametrize("message", [m for m in recorded() if m["kind"] == "outputs"], ids=lambda m: str(m["number"]))
def test_outputs_are_the_bytes_that_vllm_makes(message):
    """Outputs equal vLLM's frame by frame; a request's parameters differ, as vLLM omits default values."""
    encoded = [bytes(frame) for frame in MsgpackEncoder().encode(message_of(message))]
    assert encoded == frames_of(message)
