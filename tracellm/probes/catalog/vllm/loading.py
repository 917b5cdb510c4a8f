"""What a vLLM reads its weights from, and what becomes of them: files, bytes, tensors, parameters, the device.

Which files it takes `_prepare_weights` says, to `load_weights` around it. How large they are, and how many tensors are
in them, is read off the files once more, later: of safetensors files that is a header.

vLLM: vllm/model_executor/model_loader/default_loader.py, base_loader.py.
"""

from pathlib import Path
from typing import Any

import msgspec

from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.vllm.entries import at, plain
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]

_LONGEST_HEADER = 100_000_000
"""Bytes that the safetensors format allows its header."""


def _capture_found(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    source = argument(args, kwargs, 1, "model_name_or_path")
    return str(source), [str(file) for file in result[1]]


def _found(facts: Any) -> dict[str, Any]:
    source, files = facts
    told = f"{len(files)} {'file' if len(files) == 1 else 'files'}, {_num_bytes(files)} bytes"
    return {names.LOAD_SOURCE: source, names.LOAD_FILES: [Path(file).name for file in files], names.RESULT: told}


def _give_found(facts: Any) -> dict[str, Any]:
    return {"files": facts[1]}


def _num_bytes(files: list[str]) -> int:
    return sum(Path(file).stat().st_size for file in files if Path(file).is_file())


def _num_tensors(files: list[str]) -> int | None:
    """How many tensors are in safetensors files; None where some are of another kind."""
    found = 0
    for file in map(Path, files):
        if file.suffix != ".safetensors" or not file.is_file():
            return None
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = msgspec.json.decode(opened.read(min(length, _LONGEST_HEADER)))
        found += len(header) - ("__metadata__" in header)
    return found


def _capture_read(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    parameters = list(argument(args, kwargs, 1, "model").parameters())
    kind = type(argument(args, kwargs, 1, "model")).__name__
    if not parameters:
        return kind, 0, "", ""
    return kind, sum(one.numel() for one in parameters), str(parameters[0].dtype), str(parameters[0].device)


def _read(facts: Any) -> dict[str, Any]:
    architecture, parameters, dtype, _ = facts
    return {
        names.LOAD_ARCHITECTURE: architecture,
        names.LOAD_PARAMETERS: parameters,
        names.LOAD_DTYPE: dtype.removeprefix("torch."),
        names.RESULT: f"{parameters} parameters",
    }


def _note_read(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    files = given.get("files")
    if facts is None or files is None:
        return
    span.attributes[names.LOAD_BYTES] = _num_bytes(files)
    if (tensors := _num_tensors(files)) is not None:
        span.attributes[names.LOAD_TENSORS] = tensors
        span.attributes[names.RESULT] = f"{tensors} tensors, {facts[1]} parameters"


def _capture_placed(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    parameters = list(argument(args, kwargs, 0, "model").parameters())
    num_bytes = sum(one.numel() * one.element_size() for one in parameters)
    return str(parameters[0].device) if parameters else "", num_bytes


def _placed(facts: Any) -> dict[str, Any]:
    device, num_bytes = facts
    return {
        names.LOAD_DEVICE: device,
        names.ARGUMENTS: ["model=Module"],
        names.RESULT: f"{num_bytes} bytes on {device}",
    }


_LOADER = at("model_executor.model_loader.")
_DEFAULT = _LOADER + "default_loader:DefaultModelLoader"

ENTRIES = (
    *plain("request", "model_executor.model_loader.base_loader", "BaseModelLoader.load_model"),
    Entry(
        f"{_DEFAULT}._prepare_weights",
        "request",
        _capture_found,
        _found,
        gives=_give_found,
        gives_to="DefaultModelLoader.load_weights",
    ),
    Entry(f"{_DEFAULT}.load_weights", "request", _capture_read, _read, observe=_note_read),
    Entry(_LOADER + "utils:process_weights_after_loading", "request", _capture_placed, _placed),
)
