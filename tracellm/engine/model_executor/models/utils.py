"""What every model shares: its interface, the reading of config.json, and the filling of its parameters.

vLLM: vllm/model_executor/models/interfaces_base.py and models/utils.py (`AutoWeightsLoader`, `extract_layer_index`).
"""

import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.model_executor.layers.linear import MergedColumnParallelLinear

__all__ = ["CausalLM", "check_config", "get_sliding_window", "load_parameters"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class CausalLM(nn.Module):
    """A decoder-only language model, built from a `VllmConfig` with parameters yet to be loaded."""

    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {}
    """For each merged layer the projections it holds, in the order of its rows, as the checkpoint names them."""

    @abstractmethod
    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()

    @abstractmethod
    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Token ids and their positions, int [T], to the hidden states after the last layer, [T, hidden]."""

    @abstractmethod
    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Hidden states [N, hidden] to one score for each token of the vocabulary, [N, vocabulary]."""

    @abstractmethod
    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """Fill the parameters from a checkpoint's (name, tensor) pairs; the number of tensors that were used.

        Raises:
            ModelLoadError: a tensor is missing, unexpected, or of the wrong shape or kind, or not finite.
        """


def check_config(hf_config: Any, **supported: Any) -> None:
    """Refuse a config.json that sets one of these to another value than the one that the model's code is written for.

    Raises:
        ModelLoadError: names the setting, its value, and the one that would do.
    """
    for name, value in supported.items():
        if (found := getattr(hf_config, name, value)) != value:
            raise ModelLoadError(
                f"config.json sets `{name}` to {found!r}; models of the type `{hf_config.model_type}` "
                f"run here with {value!r} only."
            )


def get_sliding_window(hf_config: Any, prefix: str) -> int | None:
    """How many tokens the layer of this name (`model.layers.3.self_attn`) sees, its own among them; None: all of them.

    `layer_types` in config.json says which layers have the window; without it all do if there is a `sliding_window`.

    Raises:
        ModelLoadError: the layer is of a type that is not supported.
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


def load_parameters(model: CausalLM, weights: Iterable[tuple[str, Tensor]], ignore: tuple[str, ...] = ()) -> int:
    """Copy every checkpoint tensor into the parameter, or the rows of a merged one, that it belongs to.

    Names that begin or end with one of `ignore` are passed over: tensors that checkpoints hold and the model computes
    itself.

    Raises:
        ModelLoadError: a tensor is missing, unexpected, or of the wrong shape or kind, or not finite.
    """
    targets = _targets(model)
    count = len(targets)
    unexpected = []
    for name, tensor in weights:
        target = targets.pop(name, None)
        if target is None:
            if not name.startswith(ignore) and not name.endswith(ignore):
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
        target.copy_(tensor)
        if not all(extreme.isfinite() for extreme in target.aminmax()):  # NaN anywhere makes both extremes NaN
            raise ModelLoadError(
                f"The checkpoint's tensor {name} holds NaN or infinity in {target.dtype}: it is damaged, or its "
                "numbers are beyond this dtype's range (then try dtype='bfloat16' or 'float32')."
            )
    if unexpected:
        raise ModelLoadError(
            f"The checkpoint holds {_some(unexpected)} that {type(model).__name__} does not have: "
            "config.json and the weights do not belong together."
        )
    if targets:
        raise ModelLoadError(f"The checkpoint lacks {_some(list(targets))} that {type(model).__name__} needs.")
    return count


def _targets(model: CausalLM) -> dict[str, Tensor]:
    """For each tensor that a checkpoint must hold, by name, the memory that it fills."""
    targets: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        module_name, kind = name.rsplit(".", 1)
        module = model.get_submodule(module_name)
        parent, _, last = module_name.rpartition(".")
        if isinstance(module, MergedColumnParallelLinear) and last in model.packed_modules_mapping:
            parts = parameter.data.split(module.output_sizes)
            for part_name, part in zip(model.packed_modules_mapping[last], parts, strict=True):
                targets[f"{parent}.{part_name}.{kind}"] = part
        else:
            targets[name] = parameter.data
    return targets


def _some(names: list[str]) -> str:
    """`3 tensors (a, b, c)`, cut short when there are many."""
    shown = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''} ({shown})"
