"""Roofline model: a lower bound of the time of requests, from the bytes and FLOPs of each step at measured rates.

A step reads every weight once, and the keys and values of the requests that it decodes; it multiplies each of its
tokens with each weight. Memory reads and computation overlap, so the longer of the two counts. Everything else
(softmax, norms, sampling, Python) counts as zero.

    decode, batch 16, 0.5 B parameters in bfloat16:   reads 1 GB   computes 16 GFLOP
    at 20 GB/s and 400 GFLOP/s:                       50 ms        40 ms               at most 320 tokens/s
"""

import json
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from tracellm.bench.machine import Ceilings
from tracellm.bench.workload import Workload

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import ModelConfig

__all__ = ["ModelCost", "Work", "cost_of", "ideal_seconds", "work_of"]

_EMBEDDINGS = ("embed_tokens.weight", "wte.weight")
_LOOKED_UP = (*_EMBEDDINGS, "wpe.weight", "embed_positions.weight")
"""Tables of which a step reads only one row for each token, so they count as zero."""
_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class ModelCost:
    """Bytes and FLOPs that a model takes."""

    weight_bytes: int
    """Weights that a step reads, in the checkpoint's dtype or the model's, whichever is narrower."""
    layer_flops: int
    """FLOPs per token: two for each weight in the layers."""
    head_flops: int
    """FLOPs per sampled token."""
    attention_flops: int
    """FLOPs per pair of a query and a key: scores and values, in all layers and heads."""
    kv_bytes: int
    """Bytes per cached token: keys and values of all layers."""


@dataclass(frozen=True)
class Work:
    """Total bytes and FLOPs of some requests."""

    num_steps: int
    num_bytes: int
    flops: int
    seconds: float
    """At the measured rates."""


def cost_of(config: "ModelConfig") -> ModelCost:
    """Return the cost of a model, from the shapes in its safetensors files.

    Raises:
        ModelLoadError: the files are not found.
    """
    from tracellm.engine.model_executor.model_loader.weight_files import find_weight_files

    tensors = _tensors(find_weight_files(config.model).files)
    shapes = {name: shape for name, (shape, _) in tensors.items()}
    layers = {name: shape for name, shape in shapes.items() if not name.endswith((*_LOOKED_UP, _HEAD))}
    tables = {name: shape for name, shape in shapes.items() if name.endswith((*_EMBEDDINGS, _HEAD))}
    # The output matrix is a tensor of its own, or tied to the embeddings.
    head = max(tables, key=lambda name: name.endswith(_HEAD), default=None)
    head_size = prod(shapes[head]) if head is not None else 0
    matrices = sum(prod(shape) for shape in layers.values() if len(shape) > 1)
    width = config.dtype.itemsize
    read = [tensors[name] for name in (*layers, *([head] if head is not None else []))]
    return ModelCost(
        weight_bytes=sum(min(stored, prod(shape) * width) for shape, stored in read),
        layer_flops=2 * matrices,
        head_flops=2 * head_size,
        attention_flops=4 * config.get_num_attention_heads() * config.get_head_size() * config.get_num_layers(),
        kv_bytes=2 * config.get_num_kv_heads() * config.get_head_size() * config.get_num_layers() * width,
    )


def _tensors(files: Iterable[Path]) -> dict[str, tuple[list[int], int]]:
    """Return each tensor's shape and bytes, from the safetensors headers: 8 bytes of length, then JSON."""
    found: dict[str, tuple[list[int], int]] = {}
    for path in files:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            first, end = entry["data_offsets"]
            found[name] = entry["shape"], end - first
    return found


def work_of(cost: ModelCost, ceilings: Ceilings, workload: Workload, at_once: int) -> Work:
    """Return the work of the requests, of which at most `at_once` run together.

    Each prompt is computed in one step, and sliding windows are ignored; both have a negligible effect.
    """
    waiting = deque(zip(map(len, workload.prompts), workload.lengths, strict=True))
    running: list[list[int]] = []  # [tokens in the cache, tokens still to come]
    steps = num_bytes = flops = 0
    seconds = 0.0
    while waiting or running:
        keys = sum(context for context, _ in running)  # read, once each
        tokens, pairs, samples = len(running), keys, len(running)
        running = [[context + 1, left] for context, left in running]
        while waiting and len(running) < at_once:
            context, length = waiting.popleft()
            running.append([context, length])
            tokens, pairs, samples = tokens + context, pairs + context * (context + 1) // 2, samples + 1
        step_bytes = cost.weight_bytes + cost.kv_bytes * keys
        step_flops = tokens * cost.layer_flops + samples * cost.head_flops + pairs * cost.attention_flops
        steps, num_bytes, flops = steps + 1, num_bytes + step_bytes, flops + step_flops
        seconds += ceilings.seconds(step_bytes, step_flops)
        running = [[context, left - 1] for context, left in running if left > 1]
    return Work(steps, num_bytes, flops, seconds)


def ideal_seconds(cost: ModelCost, ceilings: Ceilings, workload: Workload, at_once: int) -> tuple[float, float]:
    """Return the minimum time of the whole workload, and of its decoding alone."""
    whole = work_of(cost, ceilings, workload, at_once).seconds
    return whole, whole - work_of(cost, ceilings, workload.first_tokens(), at_once).seconds
