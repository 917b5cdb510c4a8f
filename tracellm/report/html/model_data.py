"""The loaded model and its kernels as data for the page's script.

js/model/model.js computes shapes, bytes and FLOPs of a step from it, and describes its fields.
"""

import re
from collections.abc import Mapping
from typing import Any

from tracellm.report.facts.engines import EngineFacts, step_positions
from tracellm.report.facts.kernels import kernels
from tracellm.report.facts.requests import as_list
from tracellm.report.facts.startup import startup_spans
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.ranges import parse_ranges
from tracellm.trace.steps import engine_key

__all__ = ["kernel_rows", "model_data"]

_WEIGHT = re.compile(r"(?P<name>\S+)=(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\]")
_ATTENTION = re.compile(r"(?P<name>\S+): heads=(\d+) kv_heads=(\d+) head_size=(\d+) window=(\d+)")
_LAYERS = re.compile(r"\.(\d[\d,-]*)\.")

_ITEM_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}

_PEAKS = {
    "NVIDIA B200": (2250e12, None, 8.0e12),
    "NVIDIA H200": (989e12, 67e12, 4.8e12),
    "NVIDIA H100 80GB HBM3": (989e12, 67e12, 3.35e12),
    "NVIDIA H100 PCIe": (756e12, 51e12, 2.0e12),
    "NVIDIA A100-SXM4-80GB": (312e12, 19.5e12, 2.039e12),
    "NVIDIA A100-SXM4-40GB": (312e12, 19.5e12, 1.555e12),
    "NVIDIA A100 80GB PCIe": (312e12, 19.5e12, 1.935e12),
    "NVIDIA A100-PCIE-40GB": (312e12, 19.5e12, 1.555e12),
    "NVIDIA L40S": (362e12, 91.6e12, 0.864e12),
    "NVIDIA L4": (121e12, 30.3e12, 0.3e12),
    "NVIDIA GeForce RTX 4090": (165e12, 82.6e12, 1.008e12),
}
"""FLOP/s of 16-bit numbers in tensor cores without sparsity, of float32 without tensor cores (None: not known), and
bytes per second of the memory: the makers' data sheets, by the name that the driver reports."""


def model_data(trace: Trace, engine: EngineFacts) -> dict[str, Any]:
    """Return the model that an engine loaded; empty if its parameters were not recorded."""
    weights = _last(trace, engine, names.LOAD_WEIGHTS)
    if not weights:
        return {}
    get = {**_last(trace, engine, names.LOAD_DEVICE), **_last(trace, engine, names.LOAD_OPS), **weights}.get
    config = _last(trace, engine, names.LOAD_CONFIG).get(names.LOAD_CONFIG)
    dtype, device_name = str(get(names.LOAD_DTYPE, "")), str(get(names.LOAD_DEVICE_NAME, ""))
    return {
        "architecture": str(get(names.LOAD_ARCHITECTURE, "")),
        "dtype": dtype,
        "device": str(get(names.LOAD_DEVICE, "")),
        "deviceName": device_name,
        "ops": str(get(names.LOAD_OPS, "")),
        "config": dict(entry.split("=", 1) for entry in map(str, as_list(config)) if "=" in entry),
        "weights": [_weight(match) for match in map(_WEIGHT.fullmatch, _texts(get(names.LOAD_WEIGHTS))) if match],
        "attention": [_heads(match) for match in map(_ATTENTION.fullmatch, _texts(get(names.LOAD_ATTENTION))) if match],
        "kvSize": _cache_item_size(engine.settings.get("cache_dtype", ""), dtype),
        "workers": _setting(engine, "tensor_parallel_size") * _setting(engine, "pipeline_parallel_size"),
        "peak": _peak(device_name, dtype),
    }


def _last(trace: Trace, engine: EngineFacts, attribute: str) -> Mapping[str, Any]:
    """Return the attributes of the last span before an engine's first step that has this one.

    A span of the engine's process comes first: a vLLM may load the model in a process of its own.
    """
    first = engine.steps[0].span
    found = [span for span in startup_spans(trace) if attribute in span.attributes and span.start_ns <= first.start_ns]
    own = [span for span in found if engine_key(span) == engine_key(first)]
    return (own or found)[-1].attributes if found else {}


def _texts(value: object) -> list[str]:
    return list(map(str, as_list(value)))


def _weight(match: re.Match[str]) -> list[Any]:
    name, layers = _split(match["name"])
    return [name, layers, match["dtype"], [int(length) for length in match["shape"].split(",") if length.strip()]]


def _heads(match: re.Match[str]) -> list[Any]:
    _, layers = _split(match["name"])
    return [layers or [0], *map(int, match.groups()[1:])]


def _split(name: str) -> tuple[str, list[int] | None]:
    """Return the name with `*` for the numbers of its layers, and these; None for a name without layers."""
    layers = _LAYERS.search(name)
    return (name, None) if layers is None else (_LAYERS.sub(".*.", name, count=1), list(parse_ranges(layers[1])))


def _cache_item_size(cache_dtype: str, dtype: str) -> int:
    """Return the bytes of a number in the KV cache, which has the model's dtype unless a setting names another."""
    return 1 if cache_dtype.startswith("fp8") else _ITEM_SIZES.get(cache_dtype, _ITEM_SIZES.get(dtype, 4))


def _setting(engine: EngineFacts, name: str) -> int:
    """Return a number among the settings; 1 if it was not recorded."""
    value = engine.settings.get(name, "")
    return int(value) if value.isdigit() else 1


def _peak(device_name: str, dtype: str) -> dict[str, float] | None:
    """Return the FLOPs and bytes per second of a GPU's data sheet; None if they are not known."""
    narrow, wide, bandwidth = _PEAKS.get(device_name, (None, None, None))
    flops = wide if dtype == "float32" else narrow
    return {"flops": flops, "bytes": bandwidth} if flops and bandwidth else None


def kernel_rows(trace: Trace) -> list[list[Any]]:
    """Return a row for each kernel in each step, with engine and step as indexes; both are -1 outside of steps.

    A row is `[engine, step, name, launches, launch ns, bytes, FLOPs, timed launches, GPU ns, timed bytes, timed
    FLOPs]`.
    """
    steps = step_positions(trace)
    return [
        [
            *steps.get(kernel.step or "", (-1, -1)),
            kernel.name,
            kernel.launches,
            kernel.launch_ns,
            kernel.bytes,
            kernel.flops,
            kernel.timed,
            kernel.gpu_ns,
            kernel.timed_bytes,
            kernel.timed_flops,
        ]
        for kernel in kernels(trace)
    ]
