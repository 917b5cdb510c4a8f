"""Tests that the messages between the front end and the engine core can be encoded as bytes."""

from typing import Any

import msgspec
import numpy as np
import torch

from tests.engine.core_requests import core_request
from tracellm import SamplingParams
from tracellm.engine.ipc.messages import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
)
from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors


def only_arrays(value: Any) -> Any:
    """Encode numpy arrays and tensors, and refuse other types that are not plain values."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.tolist()
    raise TypeError(f"{type(value)} is no plain value")


def test_a_request_survives_the_way():
    """A request with parameters of every kind is the same after encoding and decoding."""
    params = SamplingParams(stop=["a"], logprobs=2, logit_bias={3: 1.0}, stop_token_ids=[4], bad_words=["x"], seed=7)
    request = core_request("a", [1, 2], params, 5, 10.0, priority=-1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=EngineCoreRequest) == request


def test_outputs_are_plain_values_and_arrays():
    """Every field of an output is a plain value, an array or a tensor."""
    rows, ranks = np.array([[5, 6]]), np.array([1])
    output = EngineCoreOutput(
        "a",
        [5],
        new_logprobs=LogprobsLists(rows, -rows / 2, ranks),
        new_prompt_logprobs_tensors=LogprobsTensors(*(torch.from_numpy(part) for part in (rows, -rows / 2, ranks))),
        finish_reason=FinishReason.STOP,
        stop_reason="x",
        events=[EngineCoreEvent.new_event(EngineCoreEventType.QUEUED, 3.0)],
        num_cached_tokens=16,
    )
    encoded = msgspec.msgpack.encode(EngineCoreOutputs(outputs=[output], timestamp=4.0), enc_hook=only_arrays)
    logprobs = [[[5, 6]], [[-2.5, -3.0]], [1]]
    assert msgspec.msgpack.decode(encoded) == [
        0,
        [["a", [5], [*logprobs, None], logprobs, None, 0, "x", [{"type": 1, "timestamp": 3.0}], None, None, 16, 0]],
        None,
        4.0,
        *[None] * 4,
    ]
