"""Base class of the models, checks of config.json, loading of parameters, and what models with several parts share.

vLLM: vllm/model_executor/models/interfaces_base.py and models/utils.py (`AutoWeightsLoader`, `WeightsMapper`,
`extract_layer_index`, `_merge_multimodal_embeddings`, `make_layers`, `PPMissingLayer`); vllm/sequence.py
(`IntermediateTensors`).
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.distributed.parallel_state import get_pp_group
from tracellm.engine.distributed.utils import get_pp_indices

__all__ = [
    "CausalLM",
    "IntermediateTensors",
    "PPMissingLayer",
    "check_config",
    "check_supports_pp",
    "flatten_weight",
    "get_sliding_window",
    "has_embedding",
    "load_parameters",
    "make_if",
    "make_layers",
    "merge_multimodal_embeddings",
    "rename_weights",
]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass
class IntermediateTensors:
    """Results of a pipeline stage for the next one, [T, hidden] each, by name.

    vLLM: vllm/sequence.py::IntermediateTensors.
    """

    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    @classmethod
    def zeros(cls, num_tokens: int, hidden_size: int, dtype: torch.dtype, device: torch.device) -> Self:
        """Return what a stage could get for `num_tokens` tokens."""
        shape, names = (num_tokens, hidden_size), ("hidden_states", "residual")
        return cls({name: torch.zeros(shape, dtype=dtype, device=device) for name in names})


class PPMissingLayer(nn.Identity):
    """Place of a module that another pipeline stage has."""


def make_if(is_here: bool, layer_fn: Callable[[], nn.Module]) -> Any:
    """Return the module that `layer_fn` makes, if it is one of this stage, else a `PPMissingLayer`."""
    return layer_fn() if is_here else PPMissingLayer()


def make_layers(num_hidden_layers: int, layer_fn: Callable[[int], nn.Module]) -> tuple[int, int, nn.ModuleList]:
    """Return the first of this stage's layers, the layer after its last, and all layers, those of others missing.

    Args:
        num_hidden_layers: layers of the model.
        layer_fn: makes the layer of an index.

    Raises:
        EngineError: see `get_pp_indices`.
    """
    group = get_pp_group()
    start, end = get_pp_indices(num_hidden_layers, group.rank_in_group, group.world_size)
    return (
        start,
        end,
        nn.ModuleList(layer_fn(i) if start <= i < end else PPMissingLayer() for i in range(num_hidden_layers)),
    )


def has_embedding(hf_config: Any) -> bool:
    """Return whether this stage has the input embedding: the first, and the last if its output layer is tied."""
    group = get_pp_group()
    return group.is_first_rank or (group.is_last_rank and hf_config.tie_word_embeddings)


class CausalLM(nn.Module):
    """Decoder-only language model, built from a `VllmConfig` with uninitialized parameters."""

    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {}
    """Projections of each merged layer, in the order of its rows, by their names in the checkpoint."""
    pooler: nn.Module
    """Set for pooling models only: see layers/pooler.py."""

    @abstractmethod
    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()

    @abstractmethod
    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """Return the final hidden states [T, hidden] for token ids and positions, int [T].

        A pipeline stage that is not the first continues with `intermediate_tensors`, and one that is not the last
        returns such.
        """

    @abstractmethod
    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Return logits [N, vocabulary] for hidden states [N, hidden]."""

    @abstractmethod
    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """Copy a checkpoint's (name, tensor) pairs into the parameters; return the number of tensors used.

        Raises:
            ModelLoadError: a tensor is missing, unexpected, or of the wrong shape or kind, or not finite.
        """


def check_config(hf_config: Any, **supported: Any) -> None:
    """Refuse a config.json whose settings differ from those that the model's code supports.

    Raises:
        ModelLoadError: a setting has another value.
    """
    for name, value in supported.items():
        if (found := getattr(hf_config, name, value)) != value:
            raise ModelLoadError(
                f"config.json sets `{name}` to {found!r}; models of the type `{hf_config.model_type}` "
                f"run here with {value!r} only."
            )


def check_supports_pp(model_class: type[CausalLM]) -> None:
    """Refuse a model whose `forward` does not take another pipeline stage's results.

    Raises:
        ModelLoadError: it does not.
    """
    if "intermediate_tensors" not in signature(model_class.forward).parameters:
        raise ModelLoadError(
            f"Pipeline parallelism is not supported for {model_class.__name__}: its `forward` has no "
            "`intermediate_tensors`. Leave out `pipeline_parallel_size`."
        )


def get_sliding_window(hf_config: Any, prefix: str) -> int | None:
    """Return the sliding window of the layer `prefix` (`model.layers.3.self_attn`), or None for full attention.

    `layer_types` in config.json names the layers with the window; without it, all layers have `sliding_window`.

    Raises:
        ModelLoadError: the layer's type is not supported.
    """
    window = getattr(hf_config, "sliding_window", None)
    layer_types = getattr(hf_config, "layer_types", None)
    if layer_types is None:
        return window
    index = int(re.findall(r"\.layers\.(\d+)", prefix)[0])
    layer_type = layer_types[index]
    if layer_type not in ("full_attention", "sliding_attention"):
        raise ModelLoadError(
            f"config.json's `layer_types` says `{layer_type}` for layer {index}; "
            "`full_attention` and `sliding_attention` are supported."
        )
    return window if layer_type == "sliding_attention" else None


def merge_multimodal_embeddings(
    inputs_embeds: Tensor, multimodal_embeddings: Sequence[Tensor], is_multimodal: Tensor | None
) -> Tensor:
    """Return `inputs_embeds` [T, hidden] with the rows of the items, one after the other, where `is_multimodal` [T].

    Raises:
        ValueError: the numbers of rows and places differ, or there is no `is_multimodal`.
    """
    if is_multimodal is None:
        raise ValueError("`is_multimodal` is needed where there are multimodal embeddings.")
    rows = torch.cat(list(multimodal_embeddings)).to(inputs_embeds)
    if (places := int(is_multimodal.sum())) != len(rows):  # the only wait for the device
        raise ValueError(f"There are {len(rows)} multimodal embeddings for {places} placeholder tokens.")
    return inputs_embeds.masked_scatter(is_multimodal[:, None], rows)


def rename_weights(weights: Iterable[tuple[str, Tensor]], prefixes: Mapping[str, str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the pairs with the first of `prefixes` that a name begins with replaced by its value."""
    for name, tensor in weights:
        prefix = next(filter(name.startswith, prefixes), "")
        yield prefixes.get(prefix, "") + name.removeprefix(prefix), tensor


def flatten_weight(weights: Iterable[tuple[str, Tensor]], name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the pairs, the kernel `name` [out, in, ...] of a convolution over patches as a linear layer's matrix."""
    for one, tensor in weights:
        yield one, tensor.flatten(1) if one == name else tensor


def load_parameters(model: CausalLM, weights: Iterable[tuple[str, Tensor]], ignore: tuple[str, ...] = ()) -> int:
    """Copy each checkpoint tensor into its parameter, or its rows of a merged parameter; return their number.

    With tensor parallelism only this worker's part is copied, so only that is read from a memory-mapped file.

    Names that begin or end with one of `ignore` are skipped: tensors that the model computes itself. So are those of
    modules that another pipeline stage has.

    Raises:
        ModelLoadError: a tensor is missing, unexpected, or of the wrong shape or kind, or not finite.
    """
    targets = _targets(model)
    missing = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, PPMissingLayer))
    count = len(targets)
    unexpected = []
    for name, tensor in weights:
        target = targets.pop(name, None)
        if target is None:
            if not name.startswith(ignore + missing) and not name.endswith(ignore):
                unexpected.append(name)
            continue
        if target.shape != tensor.shape:
            raise ModelLoadError(
                f"The checkpoint's tensor {name} has the shape {list(tensor.shape)}, "
                f"but config.json asks for {list(target.shape)}."
            )
        if tensor.dtype not in _DTYPES:
            raise ModelLoadError(
                f"The checkpoint's tensor {name} holds {tensor.dtype}, not numbers of 16 bits or more: "
                "quantized checkpoints are not supported."
            )
        for part, dim, start in target.parts:
            part.copy_(tensor.narrow(dim, start, part.shape[dim]))
            if not all(extreme.isfinite() for extreme in part.aminmax()):  # NaN anywhere makes both extremes NaN
                raise ModelLoadError(
                    f"The checkpoint's tensor {name} holds NaN or infinity in {part.dtype}: it is damaged, or its "
                    "numbers are beyond this dtype's range (then try dtype='bfloat16' or 'float32')."
                )
    if unexpected:
        raise ModelLoadError(
            f"The checkpoint holds {_format_names(unexpected)} that {type(model).__name__} does not have: "
            "config.json and the weights do not belong together."
        )
    if targets:
        raise ModelLoadError(f"The checkpoint lacks {_format_names(list(targets))} that {type(model).__name__} needs.")
    return count


class _Target(NamedTuple):
    """The destination of a checkpoint's tensor.

    Attributes:
        shape: shape of the tensor.
        parts: parts of parameters, and the dimension and first index in the tensor of what belongs there.
    """

    shape: torch.Size
    parts: list[tuple[Tensor, int, int]]


def _targets(model: CausalLM) -> dict[str, _Target]:
    """Return the destination of each tensor that the checkpoint must hold, by name."""
    targets: dict[str, _Target] = {}
    for name, parameter in model.named_parameters():
        module_name, kind = name.rsplit(".", 1)
        module = model.get_submodule(module_name)
        parent, _, last = module_name.rpartition(".")
        partitions, dim = getattr(module, "partitions", ()), getattr(module, "partition_dim", 0)
        if not partitions or dim >= parameter.dim():  # the bias of a row-parallel layer is whole
            targets[name] = _Target(parameter.shape, [(parameter.data, 0, 0)])
            continue
        row, first, parts = 0, 0, []
        for start, size, total in partitions:
            parts.append((parameter.data.narrow(dim, row, size), dim, first + start))
            row, first = row + size, first + total
        if (names := model.packed_modules_mapping.get(last)) is None or len(partitions) == 1:
            targets[name] = _Target(_resized(parameter.shape, dim, first), parts)
            continue
        for part_name, (part, _, _), (start, _, total) in zip(names, parts, partitions, strict=True):
            shape = _resized(parameter.shape, dim, total)
            targets[f"{parent}.{part_name}.{kind}"] = _Target(shape, [(part, dim, start)])
    return targets


def _resized(shape: torch.Size, dim: int, size: int) -> torch.Size:
    return torch.Size([*shape[:dim], size, *shape[dim + 1 :]])


def _format_names(names: list[str]) -> str:
    """Return `3 tensors (a, b, c)`, with at most three names."""
    shown = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''} ({shown})"
