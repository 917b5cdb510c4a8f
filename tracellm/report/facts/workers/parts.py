"""The part of the model that each of several workers has: its layers, its part of each weight, its memory.

Each worker records the shapes of its own parameters, and which part of a divided weight it has, when it loads them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from tracellm.report.facts.requests import as_int, as_list, as_text
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Process, Trace
from tracellm.trace.ranges import format_ranges, parse_ranges

__all__ = ["WeightPart", "WorkerPart", "worker_parts"]

_WEIGHT = re.compile(r"(?P<name>[^=]+)=(?P<dtype>[a-z]+(?P<bits>\d+)\w*)\[(?P<shape>[\d, ]*)\]")
_LAYERS = re.compile(r"\.layers\.([\d,-]+)\.|\.h\.([\d,-]+)\.")
_PARTITION = re.compile(r"(?P<name>\S+): dim=(?P<dim>\d+) (?P<ranges>.+)")
_RANGE = re.compile(r"(\d+)\+(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class WeightPart:
    """One weight, or the same one of several layers.

    Attributes:
        name: `model.layers.0-1.self_attn.qkv_proj.weight`.
        dtype: `float32`.
        shape: shape of the part.
        whole: shape of the undivided weight.
        dim: the divided dimension; None if the worker has all of it.
        ranges: first index, number of indices, and size of the dimension, for each projection.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    dim: int | None
    ranges: tuple[tuple[int, int, int], ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """One worker: its rank, its pipeline stage, the ranks that share its layers, and its part of the model."""

    rank: int
    process: Process
    stage: int
    tp_ranks: tuple[int, ...]
    device: str
    weights: tuple[WeightPart, ...]
    kv_cache_bytes: int | None

    @property
    def layers(self) -> str:
        """Numbers of its layers, `0-1`; empty if not recorded."""
        numbers = {
            number
            for weight in self.weights
            if (match := _LAYERS.search(weight.name)) is not None
            for number in parse_ranges(match[1] or match[2])
        }
        return format_ranges(sorted(numbers))

    @property
    def weight_bytes(self) -> int:
        """Size of its parameters."""
        return sum(weight.num_bytes for weight in self.weights)


@per_trace
def worker_parts(trace: Trace) -> tuple[tuple[WorkerPart, ...], ...]:
    """Return the workers of each engine, by rank; engines with one worker have none."""
    found: dict[int, tuple[Process, dict[str, Any]]] = {}
    for span in trace.spans:
        if span.process is None or not any(name in span.attributes for name in _FACTS):
            continue
        _, facts = found.setdefault(id(span.process), (span.process, {}))
        for name in _FACTS:
            if name in span.attributes:
                facts.setdefault(name, span.attributes[name])
    groups: list[dict[int, WorkerPart]] = []
    for process, facts in found.values():
        if (rank := as_int(facts.get(names.WORKER_RANK))) is None:
            continue
        if not groups or rank in groups[-1]:  # a script may make one engine after the other
            groups.append({})
        groups[-1][rank] = _part(rank, process, facts)
    return tuple(tuple(part for _, part in sorted(group.items())) for group in groups)


_FACTS = (
    names.WORKER_RANK,
    names.WORKER_TP_RANKS,
    names.WORKER_PP_RANKS,
    names.WORKER_KV_BYTES,
    names.LOAD_WEIGHTS,
    names.LOAD_PARTITIONS,
    names.LOAD_DEVICE,
)


def _part(rank: int, process: Process, facts: dict[str, Any]) -> WorkerPart:
    pipeline = as_list(facts.get(names.WORKER_PP_RANKS))
    return WorkerPart(
        rank=rank,
        process=process,
        stage=pipeline.index(rank) if rank in pipeline else 0,
        tp_ranks=tuple(as_list(facts.get(names.WORKER_TP_RANKS))),
        device=as_text(facts.get(names.LOAD_DEVICE)) or "",
        weights=tuple(_weights(facts)),
        kv_cache_bytes=as_int(facts.get(names.WORKER_KV_BYTES)),
    )


def _weights(facts: dict[str, Any]) -> Iterator[WeightPart]:
    entries = (_PARTITION.fullmatch(str(entry)) for entry in as_list(facts.get(names.LOAD_PARTITIONS)))
    partitions = {match["name"]: (int(match["dim"]), _ranges(match["ranges"])) for match in entries if match}
    for match in map(_WEIGHT.fullmatch, map(str, as_list(facts.get(names.LOAD_WEIGHTS)))):
        if match is None:
            continue
        name, shape = match["name"], tuple(map(int, re.findall(r"\d+", match["shape"])))
        dim, ranges = partitions.get(name.removesuffix(".bias").removesuffix(".weight") + ".weight", (None, ()))
        if dim is not None and dim >= len(shape):  # the bias of a layer whose inputs are divided
            dim, ranges = None, ()
        whole = shape
        if dim is not None:
            whole = (*shape[:dim], sum(total for _, _, total in ranges), *shape[dim + 1 :])
        layers = _LAYERS.search(name)
        count = len(parse_ranges(layers[1] or layers[2])) if layers else 1
        yield WeightPart(name, match["dtype"], shape, whole, dim, ranges, count * prod(shape) * int(match["bits"]) // 8)


def _ranges(text: str) -> tuple[tuple[int, int, int], ...]:
    return tuple((int(start), int(size), int(total)) for start, size, total in _RANGE.findall(text))
