"""Shape of a loaded model: sizes in its config.json, its parameters, and the heads of its attention layers.

Recorded once, when the weights are loaded, for this engine and for a vLLM. The report computes bytes and FLOPs of a
step from it (report/html/model_data.py).

vLLM: vllm/attention/layer.py::Attention has the same names for heads, head size and window.
"""

import re
import sys
from collections.abc import Sequence
from typing import Any

from tracellm.trace import names
from tracellm.trace.ranges import format_ranges

__all__ = ["device_name", "model_config", "model_shape"]

_CONFIG = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "sliding_window",
    "tie_word_embeddings",
    "kv_lora_rank",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_experts_per_tok",
)
"""Entries of config.json that sizes and work of a model follow from; each model has some of them."""

_MOST_ENTRIES = 2000
"""Entries of a recording; those after them are left out."""
_LAYER = re.compile(r"\.(\d+)\.")
"""Number of a layer in the name of a module: the first number."""


def model_config(config: Any) -> dict[str, Any]:
    """Return the sizes in the Hugging Face configuration of a model as attributes; of its text half, if it has two.

    Only entries that are there are read: tracellm's own configuration imports transformers for any other.
    """
    config = config.get_text_config() if hasattr(type(config), "get_text_config") else config
    entries, aliases = vars(config), getattr(type(config), "attribute_map", {})
    found = ((name, entries.get(name, entries.get(aliases.get(name, name)))) for name in _CONFIG)
    rope = any(entries.get(name) for name in ("rope_parameters", "rope_scaling", "rope_theta"))
    sizes = [f"{name}={value}" for name, value in found if isinstance(value, bool | int | str)]
    return {names.LOAD_CONFIG: [*sizes, f"rope={rope}"]}


def model_shape(model: Any) -> dict[str, Any]:
    """Return the parameters and the attention layers of a model as attributes."""
    weights: dict[tuple[str, str], list[int]] = {}
    for name, parameter in model.named_parameters():
        shape = f"{str(parameter.dtype).removeprefix('torch.')}{list(parameter.shape)}"
        _add(weights, name, shape)
    attention: dict[tuple[str, str], list[int]] = {}
    for name, module in model.named_modules():
        if all(hasattr(module, size) for size in ("layer_name", "num_heads", "num_kv_heads", "head_size")):
            window = getattr(module, "sliding_window", None) or 0
            sizes = f"heads={module.num_heads} kv_heads={module.num_kv_heads} head_size={module.head_size}"
            _add(attention, f"{name}.", f"{sizes} window={window}")
    return {
        names.LOAD_WEIGHTS: [f"{name}={shape}" for name, shape in _entries(weights)],
        names.LOAD_ATTENTION: [f"{name.removesuffix('.')}: {sizes}" for name, sizes in _entries(attention)],
        **_partitions(model),
    }


def _partitions(model: Any) -> dict[str, Any]:
    """Return the parts of divided weights that this worker has as an attribute; none if no weight is divided."""
    found: dict[tuple[str, str], list[int]] = {}
    for name, module in model.named_modules():
        dim, parts = _parts(module)
        if any(size < total for _, size, total in parts):
            ranges = " ".join(f"{start}+{size}/{total}" for start, size, total in parts)
            _add(found, f"{name}.weight", f"dim={dim} {ranges}")
    return {names.LOAD_PARTITIONS: [f"{name}: {what}" for name, what in _entries(found)]} if found else {}


def _parts(module: Any) -> tuple[int, Sequence[tuple[int, int, int]]]:
    """Return the divided dimension of a layer's weight, and the first index, size and total size of each projection.

    Layers of vLLM have sizes and a rank. Several of their ranks may have the same heads of K and V.
    """
    if hasattr(module, "partitions"):
        return module.partition_dim, module.partitions
    if hasattr(module, "shard_indices"):  # VocabParallelEmbedding
        start, size = module.shard_indices.padded_org_vocab_start_index, module.num_embeddings_per_partition
        return 0, [(start, size, module.num_embeddings_padded)]
    rank, num_ranks = getattr(module, "tp_rank", 0), getattr(module, "tp_size", 1)
    if hasattr(module, "input_is_parallel"):  # RowParallelLinear
        size = module.input_size_per_partition
        return 1, [(rank * size, size, num_ranks * size)]
    if hasattr(module, "output_size_per_partition"):  # ColumnParallelLinear
        replicas = [1, *[getattr(module, "num_kv_head_replicas", 1)] * (len(module.output_partition_sizes) - 1)]
        sizes = zip(module.output_partition_sizes, replicas, strict=True)
        return 0, [(rank // copies * size, size, num_ranks // copies * size) for size, copies in sizes]
    return 0, []


def _add(found: dict[tuple[str, str], list[int]], name: str, what: str) -> None:
    """Add the layer of a name to the layers that have the same; a name without a layer is added as it is."""
    match = _LAYER.search(name)
    if match is None:
        found.setdefault((name, what), [])
    else:
        found.setdefault((_LAYER.sub(".*.", name, count=1), what), []).append(int(match[1]))


def _entries(found: dict[tuple[str, str], list[int]]) -> list[tuple[str, str]]:
    """Return names with their layers as ranges, and what they have."""
    rows = [
        (name.replace(".*.", f".{format_ranges(layers)}.", 1) if layers else name, what)
        for (name, what), layers in found.items()
    ]
    return rows[:_MOST_ENTRIES]


def device_name(device: Any) -> dict[str, Any]:
    """Return the name of a CUDA device as an attribute; none for another device."""
    torch = sys.modules["torch"]
    on_gpu = getattr(device, "type", "") == "cuda" and torch.version.cuda is not None
    return {names.LOAD_DEVICE_NAME: torch.cuda.get_device_name(device)} if on_gpu else {}
