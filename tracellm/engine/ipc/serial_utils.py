"""Encoding of the messages between the engine's processes: msgpack, and large arrays in frames of their own.

The clients encode requests, which the threads of `EngineCoreProc` decode; outputs take the opposite way. A message is a
list of frames, the first of which is msgpack. A tensor or array is encoded as `[dtype, shape, data]`. `data` is its
bytes if it is small. Otherwise it is the index of a frame with its memory, which is neither copied nor parsed. This is
the format of vLLM 0.11.1.

Messages are never pickled: both sides refuse everything but plain values and arrays, so received bytes cannot run code.

vLLM: vllm/v1/serial_utils.py. Left out: nested tensors; pickle (there with VLLM_ALLOW_INSECURE_SERIALIZATION).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import torch
import zmq
from msgspec import msgpack

from tracellm.engine.config.errors import EngineError, first_line
from tracellm.engine.ipc.messages import UtilityResult
from tracellm.engine.multimodal import inputs
from tracellm.engine.worker import model_runner_output

__all__ = ["MsgpackDecoder", "MsgpackEncoder", "bytestr"]

Bytes = bytes | bytearray | memoryview
bytestr = Bytes | zmq.Frame
"""A frame; encoders produce only `Bytes`."""

CUSTOM_TYPE_RAW_VIEW = 3
"""msgpack extension code for the bytes of an array; vLLM uses 1 and 2 for pickled objects."""

_SIZE_THRESHOLD = 256  # bytes; a smaller array is cheaper inside the message than in a frame
_ARRAY_KINDS = "biufc"  # booleans and numbers, not object pointers
_MAX_DIMENSIONS = 32


@cache
def _torch_dtypes() -> dict[str, torch.dtype]:
    """Return all dtypes by name."""
    dtypes = (getattr(torch, name) for name in dir(torch))
    return {str(dtype).removeprefix("torch."): dtype for dtype in dtypes if isinstance(dtype, torch.dtype)}


class MsgpackEncoder:
    """Encodes messages as frames. Not thread-safe.

    vLLM: vllm/v1/serial_utils.py::MsgpackEncoder.
    """

    def __init__(self, size_threshold: int = _SIZE_THRESHOLD) -> None:
        """Encode arrays of fewer than `size_threshold` bytes inside the message."""
        self.encoder = msgpack.Encoder(enc_hook=self.enc_hook)
        self.aux_buffers: list[Bytes] | None = None
        """Frames of the message being encoded."""
        self.size_threshold = size_threshold

    def encode(self, obj: Any) -> Sequence[Bytes]:
        """Return the frames: msgpack, then the memory of large arrays, which must not change until it is sent.

        Raises:
            EngineError: the message contains something other than plain values and arrays.
        """
        frames: list[Bytes] = [b""]
        frames[0] = self._encode(frames, lambda: self.encoder.encode(obj))
        return frames

    def encode_into(self, obj: Any, buf: bytearray) -> Sequence[Bytes]:
        """Return the frames like `encode`, writing the msgpack into `buf`, which is overwritten."""
        frames: list[Bytes] = [buf]
        self._encode(frames, lambda: self.encoder.encode_into(obj, buf))
        return frames

    def _encode(self, frames: list[Bytes], encode: Any) -> Any:
        self.aux_buffers = frames
        try:
            return encode()
        except EngineError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EngineError(
                f"This cannot be sent to another process: {first_line(error)}. Only None, booleans, 64-bit numbers, "
                "text, bytes, lists, dicts, arrays and tensors can be sent."
            ) from None
        finally:
            self.aux_buffers = None

    def enc_hook(self, obj: Any) -> Any:
        """Convert an object that msgspec does not support. Raises TypeError for all but tensors, arrays and results."""
        if isinstance(obj, torch.Tensor):
            return self._encode_tensor(obj)
        if isinstance(obj, np.ndarray) and obj.dtype.kind in _ARRAY_KINDS:
            return self._encode_ndarray(obj)
        if isinstance(obj, UtilityResult):
            return None, obj.result  # the first item is the result's type in vLLM
        kind = type(obj)
        raise TypeError(
            f"{kind.__module__}.{kind.__qualname__}"
            + (f" with elements of type {obj.dtype}" if isinstance(obj, np.ndarray) else "")
            + " is not a plain value"
        )

    def _encode_ndarray(self, obj: np.ndarray) -> tuple[str, tuple[int, ...], int | msgpack.Ext]:
        data = obj.data if obj.flags.c_contiguous else obj.tobytes()
        inline = not obj.shape or obj.nbytes < self.size_threshold
        return obj.dtype.str, obj.shape, self._encode_buffer(data, inline)

    def _encode_tensor(self, obj: torch.Tensor) -> tuple[str, tuple[int, ...], int | msgpack.Ext]:
        if obj.layout is not torch.strided or obj.is_quantized:
            raise TypeError(f"a tensor with the layout {obj.layout} has no plain bytes")
        data = obj.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
        inline = obj.nbytes < self.size_threshold
        return str(obj.dtype).removeprefix("torch."), tuple(obj.shape), self._encode_buffer(data, inline)

    def _encode_buffer(self, data: memoryview | bytes, inline: bool) -> int | msgpack.Ext:
        if inline:
            return msgpack.Ext(CUSTOM_TYPE_RAW_VIEW, data)  # an extension is decoded without a copy
        assert self.aux_buffers is not None
        self.aux_buffers.append(data)
        return len(self.aux_buffers) - 1


class MsgpackDecoder:
    """Decodes messages from frames. Not thread-safe.

    Large arrays are read-only views of their frame, and keep it alive.

    vLLM: vllm/v1/serial_utils.py::MsgpackDecoder. Left out: pinned memory.
    """

    def __init__(self, t: Any = None, share_mem: bool = True) -> None:
        """Decode to type `t` with full validation, or to plain values if it is None.

        `share_mem=False` copies arrays out of their frames.
        """
        model_runner_output.import_array_types()
        inputs.import_array_types()
        self.share_mem = share_mem
        self.type = t
        types = () if t is None else (t,)
        self.decoder = msgpack.Decoder(*types, ext_hook=self.ext_hook, dec_hook=self.dec_hook)
        self.aux_buffers: Sequence[bytestr] = ()

    def decode(self, bufs: bytestr | Sequence[bytestr]) -> Any:
        """Return the message in these frames, or in this single frame.

        Raises:
            EngineError: the frames are not such a message.
        """
        frames = [bufs] if isinstance(bufs, bytestr) else bufs
        self.aux_buffers = frames
        try:
            return self.decoder.decode(_view(frames[0]))
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError, RecursionError, MemoryError) as error:
            type_name = getattr(self.type, "__name__", "message")
            raise EngineError(
                f"The received message is not a valid {type_name}: {first_line(error)}. Both processes must run the "
                "same version of tracellm."
            ) from None
        finally:
            self.aux_buffers = ()

    def dec_hook(self, t: Any, obj: Any) -> Any:
        """Create an object of type `t`, which msgspec does not support, from its encoding.

        Raises:
            TypeError: `t` is not supported.
            ValueError: the encoding is invalid.
        """
        if t is inputs.Array:
            return self._decode_array(obj)
        if issubclass(t, np.ndarray):
            return self._decode_ndarray(obj)
        if issubclass(t, torch.Tensor):
            return self._decode_tensor(obj)
        if t is UtilityResult:
            result_type, result = _parts(obj, 2, "the result of a call")
            if result_type is not None:
                raise ValueError("the result of a call names a type, which is not supported")
            return UtilityResult(result)
        raise TypeError(f"{t.__name__} cannot be decoded")

    def ext_hook(self, code: int, data: memoryview) -> memoryview:
        """Return the bytes of an extension; only arrays use one. Raises ValueError for another code."""
        if code != CUSTOM_TYPE_RAW_VIEW:
            raise ValueError(f"extension {code} is not supported")
        return data

    def _decode_array(self, encoded: Any) -> torch.Tensor | np.ndarray:
        """Decode a tensor (dtype `float32`) or an array (dtype `<f4`)."""
        name, _, _ = _parts(encoded, 3, "an array")
        return self._decode_tensor(encoded) if name in _torch_dtypes() else self._decode_ndarray(encoded)

    def _decode_ndarray(self, encoded: Any) -> np.ndarray:
        name, shape, data = _parts(encoded, 3, "an array")
        dtype = np.dtype(name) if isinstance(name, str) else None
        if dtype is None or dtype.kind not in _ARRAY_KINDS:
            raise ValueError(f"an array of {name!r} is not supported")
        shape, buffer, _ = self._decode_buffer(shape, data, dtype.itemsize)
        array = np.frombuffer(buffer, dtype=dtype).reshape(shape)
        return array if self.share_mem else array.copy()

    def _decode_tensor(self, encoded: Any) -> torch.Tensor:
        name, shape, data = _parts(encoded, 3, "a tensor")
        dtype = _torch_dtypes().get(name) if isinstance(name, str) else None
        if dtype is None:
            raise ValueError(f"a tensor of {name!r} is not supported")
        shape, buffer, in_frame = self._decode_buffer(shape, data, dtype.itemsize)
        if not buffer.nbytes:
            return torch.empty(shape, dtype=dtype)
        if buffer.readonly or not (in_frame and self.share_mem):
            buffer = memoryview(bytearray(buffer))  # torch has no read-only tensors
        return torch.frombuffer(buffer, dtype=torch.uint8).view(dtype).view(shape)

    def _decode_buffer(self, shape: Any, data: Any, itemsize: int) -> tuple[list[int], memoryview, bool]:
        """Return the validated shape and memory of an array, and whether the memory is a frame."""
        is_list = isinstance(shape, (list, tuple)) and len(shape) <= _MAX_DIMENSIONS
        if not is_list or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array of shape {shape!r} is not possible")
        in_frame = type(data) is int
        if in_frame:
            if not 0 < data < len(self.aux_buffers):
                raise ValueError(f"an array refers to frame {data} of {len(self.aux_buffers)}")
            data = _view(self.aux_buffers[data])
        elif not isinstance(data, (bytes, memoryview)):
            raise ValueError(f"an array has {type(data).__name__} for its bytes")
        buffer = memoryview(data)
        if math.prod(shape) * itemsize != buffer.nbytes:
            raise ValueError(f"an array of shape {list(shape)} has {buffer.nbytes} bytes")
        return list(shape), buffer, in_frame


def _view(frame: bytestr) -> memoryview:
    return frame.buffer if isinstance(frame, zmq.Frame) else memoryview(frame)


def _parts(encoded: Any, count: int, type_name: str) -> Sequence[Any]:
    if not isinstance(encoded, (list, tuple)) or len(encoded) != count:
        raise ValueError(f"{type_name} has {count} parts")
    return encoded
