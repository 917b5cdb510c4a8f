"""Tests of the message encoding: round trips, and broken messages."""

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
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
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
    """Generate arrays of any shape and dtype, some not contiguous."""
    shape, dtype = draw(shapes), draw(st.sampled_from(NUMPY))
    array = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    return array.T if draw(st.booleans()) else array


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    """Generate tensors of any shape and dtype, some not contiguous."""
    shape, dtype = draw(shapes), draw(st.sampled_from(TORCH))
    tensor = torch.arange(int(np.prod(shape))).to(dtype).reshape(shape)
    return tensor.T if tensor.dim() == 2 and draw(st.booleans()) else tensor


def sent(message: Any, decoder: MsgpackDecoder, encoder: MsgpackEncoder = ENCODER) -> Any:
    """Encode and decode a value."""
    return decoder.decode([bytes(frame) for frame in encoder.encode(message)])


@given(
    st.lists(arrays(), min_size=3, max_size=3), st.lists(tensors(), min_size=3, max_size=3), st.sampled_from([0, 256])
)
def test_arrays_of_every_kind_arrive(lists, of_tensors, threshold):
    """Shape, dtype and values of an array arrive unchanged, inside the message or in a frame of their own."""
    output = EngineCoreOutput("a", [1], LogprobsLists(*lists), LogprobsTensors(*of_tensors))
    encoder = MsgpackEncoder(size_threshold=threshold)
    message = EngineCoreOutputs(outputs=[output])
    assert plain(sent(message, OUTPUTS, encoder)) == plain(message)
    assert plain(sent(message, MsgpackDecoder(EngineCoreOutputs, share_mem=False), encoder)) == plain(message)


@given(values)
def test_plain_values_arrive(value):
    """Plain values, as utility calls return them, arrive unchanged."""
    output = EngineCoreOutputs(utility_output=UtilityOutput(5, None, Result(value)))
    arrived = sent(output, OUTPUTS).utility_output
    assert (arrived.call_id, arrived.failure_message, arrived.result.result) == (5, None, value)
    assert sent([1, value], ANYTHING) == [1, value]


@given(
    st.dictionaries(st.text("abc_", min_size=1), arrays() | tensors(), max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=300) | st.none(),
    st.sampled_from([0, 256]),
)
def test_items_arrive(data, mask, threshold):
    """The tensors, arrays and the place of an image or sound arrive unchanged, each of its kind."""
    place = PlaceholderRange(3, 300, None if mask is None else np.array(mask))
    items = [MultiModalFeatureSpec(data, "image", "x", place), MultiModalFeatureSpec(None, "audio", "y", place)]
    request = core_request("a", [1], SamplingParams(), mm_features=items)
    encoder = MsgpackEncoder(size_threshold=threshold)
    arrived = sent(request, REQUESTS, encoder).mm_features
    assert [(one.modality, one.identifier, one.mm_position) for one in arrived] == [
        ("image", "x", place),
        ("audio", "y", place),
    ]
    assert {name: plain(value) for name, value in arrived[0].data.items()} == {
        name: plain(value) for name, value in data.items()
    }
    assert arrived[1].data is None


def test_the_tensors_of_items_are_frames_and_not_copied():
    """Each large tensor of an image is a frame of its own, without a copy on either side."""
    pixels, sizes = torch.arange(1000.0), np.arange(200)
    item = MultiModalFeatureSpec({"pixels": pixels, "sizes": sizes}, "image", "x", PlaceholderRange(0, 1))
    frames = ENCODER.encode(core_request("a", [1], SamplingParams(), mm_features=[item]))
    assert [memoryview(frame).nbytes for frame in frames[1:]] == [4000, 1600]
    assert np.shares_memory(np.frombuffer(memoryview(frames[1]), dtype=np.float32), pixels.numpy())
    received = [bytearray(frame) for frame in frames]
    (arrived,) = REQUESTS.decode(received).mm_features
    assert arrived.data is not None
    assert np.shares_memory(arrived.data["pixels"].numpy(), np.frombuffer(received[1], dtype=np.float32))
    assert np.shares_memory(arrived.data["sizes"], np.frombuffer(received[2], dtype=np.int64))


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (["|O", [1], b""], "is not supported"),
        ([["<f4"], [1], b""], "not a valid EngineCoreRequest"),
        (["float32", [3], b"1234"], "shape .* has 4 bytes"),
        ("abc", "has 3 parts"),
    ],
)
def test_tensors_of_items_that_cannot_be_are_refused(encoded, message):
    """An item's tensor of another type, or with another size, is refused."""
    request = msgspec.to_builtins(core_request("a", [1], SamplingParams()))
    request[2] = [[{"pixels": encoded}, "image", "x", {"offset": 0, "length": 1}]]
    with pytest.raises(EngineError, match=message):
        REQUESTS.decode(msgspec.msgpack.encode(request))


def test_large_arrays_are_frames_and_not_copied():
    """Large arrays are sent and received without a copy, and small ones are inside the message."""
    array = np.arange(1000)
    frames = ENCODER.encode(EngineCoreOutput("a", [], LogprobsLists(array, array[:3], array[:3])))
    assert len(frames) == 2
    assert np.shares_memory(np.frombuffer(memoryview(frames[1]), dtype=np.int64), array)
    received = [bytes(frame) for frame in frames]
    arrived = MsgpackDecoder(EngineCoreOutput).decode(received).new_logprobs.logprob_token_ids
    assert np.shares_memory(arrived, np.frombuffer(received[1], dtype=np.int64))


def test_a_buffer_is_used_again():
    """`encode_into` overwrites the previous message in the buffer, whatever its length."""
    buffer = bytearray()
    for tokens in ([1] * 500, [2]):
        frames = ENCODER.encode_into(EngineCoreOutputs(outputs=[EngineCoreOutput("a", tokens)]), buffer)
        assert frames[0] is buffer
        assert OUTPUTS.decode(frames).outputs[0].new_token_ids == tokens


class Pickled:
    """Object that records that it was unpickled."""

    def __reduce__(self) -> Any:
        raise AssertionError("somebody pickles")


@pytest.mark.parametrize(
    "value",
    [Pickled(), {1, Pickled()}, lambda: None, object, 2**64, -(2**63) - 1, "\ud800", np.array([Pickled()]), 1j],
    ids=["object", "in a set", "function", "class", "large", "small", "surrogate", "array of objects", "complex"],
)
def test_what_is_no_plain_value_is_refused(value):
    """Other objects raise an error that lists what can be sent, nothing is pickled, and the encoder still works."""
    with pytest.raises(EngineError, match=r"cannot be sent to another process: .+\. Only None, booleans"):
        ENCODER.encode(core_request("a", [1], SamplingParams(extra_args={"mine": value})))
    assert sent([1], ANYTHING) == [1]


def sampled_frames() -> list[list[bytes]]:
    """Return encoded messages to break."""
    return [[bytes(frame) for frame in ENCODER.encode(message_of(message))] for message in recorded()]


@pytest.mark.filterwarnings("ignore:SamplingParams")  # a number was changed into an invalid one
@given(st.data())
def test_broken_messages_are_refused_or_read(data):
    """Changed, truncated, invented or missing bytes and frames give an `EngineError` or a message."""
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
    """Arrays whose size does not match their bytes, or that hold no numbers, are refused."""
    with pytest.raises(EngineError, match=message):
        logprobs_of(encoded, struct.pack("<2f", 1, 2))


def test_a_possible_array_is_read():
    """A well-formed array written by hand is decoded."""
    assert logprobs_of(["<f4", [2], 1], struct.pack("<2f", 1, 2)).outputs[0].new_logprobs.logprobs.tolist() == [1, 2]


def test_a_result_that_names_its_type_is_refused():
    """A result that names a class to import, as vLLM allows, is refused."""
    message = msgspec.msgpack.encode([0, [], None, 1.0, [1, None, [["os", "system"], "true"]]])
    with pytest.raises(EngineError, match="names a type"):
        OUTPUTS.decode(message)


def test_a_message_of_other_types_is_refused():
    """A message of another type is refused with the position of the difference."""
    with pytest.raises(EngineError, match=r"not a valid EngineCoreRequest: Expected `str`, got `int` - at `\$\[0\]`"):
        REQUESTS.decode(msgspec.msgpack.encode([1] * 10))


def test_parameters_are_checked_when_they_arrive():
    """A request with invalid `SamplingParams` is refused when it is decoded."""
    request = msgspec.to_builtins(core_request("a", [1], SamplingParams()))
    request[3]["temperature"] = -1.0
    with pytest.raises(EngineError, match="temperature"):
        REQUESTS.decode(msgspec.msgpack.encode(request))
