"""Messages as bytes: what comes out is what went in, and what is no message is refused."""

import struct
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.clients.test_vllm_messages import plain
from tests.engine.clients.vllm_messages import message_of, recorded
from tests.engine.core_requests import core_request
from tracellm import SamplingParams
from tracellm.engine.config.errors import EngineError
from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, UtilityOutput
from tracellm.engine.ipc.messages import UtilityResult as Result
from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder
from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors

ENCODER = MsgpackEncoder()
OUTPUTS, REQUESTS, ANYTHING = MsgpackDecoder(EngineCoreOutputs), MsgpackDecoder(EngineCoreRequest), MsgpackDecoder()
NUMPY = ["<f4", "<f8", "<i4", "<i8", "|b1", "|u1", ">i4", "<f2"]
TORCH = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.uint8]

shapes = st.lists(st.integers(0, 12), max_size=3).map(tuple)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


@st.composite
def arrays(draw: Any) -> np.ndarray:
    """An array of any shape and of numbers of any kind, perhaps not contiguous."""
    shape, dtype = draw(shapes), draw(st.sampled_from(NUMPY))
    array = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    return array.T if draw(st.booleans()) else array


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    """The same as a tensor."""
    shape, dtype = draw(shapes), draw(st.sampled_from(TORCH))
    tensor = torch.arange(int(np.prod(shape))).to(dtype).reshape(shape)
    return tensor.T if tensor.dim() == 2 and draw(st.booleans()) else tensor


def sent(message: Any, decoder: MsgpackDecoder, encoder: MsgpackEncoder = ENCODER) -> Any:
    """What arrives."""
    return decoder.decode([bytes(frame) for frame in encoder.encode(message)])


@given(
    st.lists(arrays(), min_size=3, max_size=3), st.lists(tensors(), min_size=3, max_size=3), st.sampled_from([0, 256])
)
def test_arrays_of_every_kind_arrive(lists, of_tensors, threshold):
    """Shape, type and numbers are the same, whether the bytes go inside the message or beside it."""
    output = EngineCoreOutput("a", [1], LogprobsLists(*lists), LogprobsTensors(*of_tensors))
    encoder = MsgpackEncoder(size_threshold=threshold)
    message = EngineCoreOutputs(outputs=[output])
    assert plain(sent(message, OUTPUTS, encoder)) == plain(message)
    assert plain(sent(message, MsgpackDecoder(EngineCoreOutputs, share_mem=False), encoder)) == plain(message)


@given(values)
def test_plain_values_arrive(value):
    """Whatever a utility call returns."""
    output = EngineCoreOutputs(utility_output=UtilityOutput(5, None, Result(value)))
    arrived = sent(output, OUTPUTS).utility_output
    assert (arrived.call_id, arrived.failure_message, arrived.result.result) == (5, None, value)
    assert sent([1, value], ANYTHING) == [1, value]


def test_large_arrays_are_frames_and_not_copied():
    """What is sent is the array's own memory, and what arrives is a view of the frame; small ones are inside."""
    array = np.arange(1000)
    frames = ENCODER.encode(EngineCoreOutput("a", [], LogprobsLists(array, array[:3], array[:3])))
    assert len(frames) == 2
    assert np.shares_memory(np.frombuffer(memoryview(frames[1]), dtype=np.int64), array)
    received = [bytes(frame) for frame in frames]
    arrived = MsgpackDecoder(EngineCoreOutput).decode(received).new_logprobs.logprob_token_ids
    assert np.shares_memory(arrived, np.frombuffer(received[1], dtype=np.int64))


def test_a_buffer_is_used_again():
    """`encode_into` puts the next message where the last one was, however long this was."""
    buffer = bytearray()
    for tokens in ([1] * 500, [2]):
        frames = ENCODER.encode_into(EngineCoreOutputs(outputs=[EngineCoreOutput("a", tokens)]), buffer)
        assert frames[0] is buffer
        assert OUTPUTS.decode(frames).outputs[0].new_token_ids == tokens


class Pickled:
    """Writes down that it was unpickled."""

    def __reduce__(self) -> Any:
        raise AssertionError("somebody pickles")


@pytest.mark.parametrize(
    "value",
    [Pickled(), {1, Pickled()}, lambda: None, object, 2**64, -(2**63) - 1, "\ud800", np.array([Pickled()]), 1j],
    ids=["object", "in a set", "function", "class", "large", "small", "surrogate", "array of objects", "complex"],
)
def test_what_is_no_plain_value_is_refused(value):
    """Nothing is pickled; the error says what can be sent, and the encoder works on."""
    with pytest.raises(EngineError, match=r"cannot be sent to another process: .+\. What travels between"):
        ENCODER.encode(core_request("a", [1], SamplingParams(extra_args={"mine": value})))
    assert sent([1], ANYTHING) == [1]


def sampled_frames() -> list[list[bytes]]:
    """Messages to break."""
    return [[bytes(frame) for frame in ENCODER.encode(message_of(message))] for message in recorded()]


@pytest.mark.filterwarnings("ignore:SamplingParams")  # of a number that was changed into an odd one
@given(st.data())
def test_broken_messages_are_refused_or_read(data):
    """Bytes that were changed, cut off or made up, and frames that are missing: an `EngineError`, or a message."""
    frames = list(data.draw(st.sampled_from(sampled_frames())))
    which = data.draw(st.integers(0, len(frames) - 1))
    frame = bytearray(frames[which])
    match data.draw(st.sampled_from(["change", "cut", "lose", "make up"])):
        case "change":
            for _ in range(data.draw(st.integers(1, 4))):
                frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        case "cut":
            del frame[data.draw(st.integers(0, len(frame))) :]
        case "lose":
            frames = frames[: which + 1]
        case _:
            frame = bytearray(data.draw(st.binary(max_size=60)))
    frames[which] = bytes(frame)
    for decoder in (OUTPUTS, REQUESTS, ANYTHING):
        with suppress(EngineError):
            decoder.decode(frames)


def logprobs_of(encoded: Any, *frames: bytes) -> Any:
    """Decode an output whose log probabilities are three times `encoded`."""
    return OUTPUTS.decode([msgspec.msgpack.encode([0, [["a", [1], [encoded] * 3]]]), *frames])


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (["<f4", [3], 1], "3.*has 8 bytes"),
        (["<f4", [2], 2], "frame 2 of 2"),
        (["<f4", [2], 0], "frame 0 of 2"),
        (["<f4", [2], -1], "frame -1 of 2"),
        (["<f4", [2], True], "bool for its bytes"),
        (["|O", [1], 1], "is not supported"),
        (["<U2", [1], 1], "is not supported"),
        ([["<f4"], [2], 1], "is not supported"),
        (["<f4", [-2], 1], "shape .* not possible"),
        (["<f4", [1] * 40, 1], "shape .* not possible"),
        (["<f4", 2, 1], "shape 2 is not possible"),
        (["<f4", [2]], "has 3 parts"),
        ("abc", "has 3 parts"),
        (["<f4", [2], msgspec.msgpack.Ext(1, b"pickle..")], "extension 1 is not supported"),
        (["nonsense", [2], 1], "not a valid EngineCoreOutputs"),
    ],
)
def test_arrays_that_cannot_be_are_refused(encoded, message):
    """The sizes are held against the bytes, and only numbers are read."""
    with pytest.raises(EngineError, match=message):
        logprobs_of(encoded, struct.pack("<2f", 1, 2))


def test_a_possible_array_is_read():
    """The same by hand, as it should be."""
    assert logprobs_of(["<f4", [2], 1], struct.pack("<2f", 1, 2)).outputs[0].new_logprobs.logprobs.tolist() == [1, 2]


def test_a_result_that_names_its_type_is_refused():
    """vLLM can be told to import a class that a message names; not here."""
    message = msgspec.msgpack.encode([0, [], None, 1.0, [1, None, [["os", "system"], "true"]]])
    with pytest.raises(EngineError, match="names a type"):
        OUTPUTS.decode(message)


def test_a_message_of_other_types_is_refused():
    """Everything is checked against the type, and the error says where it differs."""
    with pytest.raises(EngineError, match=r"not a valid EngineCoreRequest: Expected `str`, got `int` - at `\$\[0\]`"):
        REQUESTS.decode(msgspec.msgpack.encode([1] * 10))


def test_parameters_are_checked_when_they_arrive():
    """A request whose parameters no `SamplingParams` would have taken is no request."""
    request = msgspec.to_builtins(core_request("a", [1], SamplingParams()))
    request[3]["temperature"] = -1.0
    with pytest.raises(EngineError, match="temperature"):
        REQUESTS.decode(msgspec.msgpack.encode(request))
