"""Loads a model in three stages, each its own method: find files, read them into CPU memory, place them on the device.

At start-up: `Worker.load_model` -> `GPUModelRunner.load_model` -> `DefaultModelLoader.load_model`.

vLLM: vllm/model_executor/model_loader/default_loader.py::DefaultModelLoader and base_loader.py. vLLM builds the model
on the device and copies tensor by tensor; here the CPU holds the whole model first, so that the stages can be told
apart. Left out: other weight formats, quantization.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.model_executor.model_loader.weight_files import WeightFiles, find_weight_files
from tracellm.engine.model_executor.models.registry import resolve_model_cls
from tracellm.engine.model_executor.models.utils import CausalLM

__all__ = ["DefaultModelLoader", "LoadedWeights", "Placement"]


@dataclass(frozen=True)
class LoadedWeights:
    """What the second stage read."""

    num_tensors: int
    """Tensors of the checkpoint that were used."""
    num_parameters: int
    """Numbers that the model has learned; shared ones count once."""
    dtype: torch.dtype
    """In what the model holds them."""


@dataclass(frozen=True)
class Placement:
    """Where the third stage put the model."""

    device: torch.device
    num_bytes: int
    """Bytes that parameters and buffers take there."""


class DefaultModelLoader:
    """Loads safetensors checkpoints."""

    def load_model(self, vllm_config: VllmConfig) -> CausalLM:
        """The model that the configuration names, on its device, ready for `forward`.

        Raises:
            ModelLoadError: an unsupported architecture, or files that are missing, damaged or do not fit config.json.
        """
        model_config = vllm_config.model_config
        model_class = resolve_model_cls(model_config.hf_config.architectures)
        if quantization := getattr(model_config.hf_config, "quantization_config", None):
            method = quantization.get("quant_method", "?") if isinstance(quantization, dict) else quantization
            raise ModelLoadError(
                f"The checkpoint is quantized ({method}), which is not supported; give an unquantized one."
            )
        weight_files = self._prepare_weights(model_config.model)
        with _default_dtype(model_config.dtype):
            model = model_class(vllm_config)
        self.load_weights(model, weight_files)
        self.place_on_device(model, vllm_config.device_config.device)
        return model

    def _prepare_weights(self, model: str) -> WeightFiles:
        """Stage 1: find the files of a directory or hub id."""
        return find_weight_files(model)

    def load_weights(self, model: CausalLM, weight_files: WeightFiles) -> LoadedWeights:
        """Stage 2: read every tensor into the model's parameters in CPU memory, converted to the model's dtype."""
        num_tensors = model.load_weights(self._get_all_weights(weight_files))
        model.eval().requires_grad_(False)
        parameters = list(model.parameters())
        return LoadedWeights(num_tensors, sum(p.numel() for p in parameters), parameters[0].dtype)

    def place_on_device(self, model: CausalLM, device: torch.device) -> Placement:
        """Stage 3: move the model to the device that computes; nothing moves when that is the CPU."""
        model.to(device)
        tensors = [*model.parameters(), *model.buffers()]
        return Placement(tensors[0].device, sum(tensor.nbytes for tensor in tensors))

    def _get_all_weights(self, weight_files: WeightFiles) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of every file by name, memory-mapped: bytes are read from the disk when they are copied."""
        for path in weight_files.files:
            with _readable(path), safe_open(path, framework="pt", device="cpu") as file:
                for name in file.keys():  # noqa: SIM118  (not a dictionary)
                    yield name, file.get_tensor(name)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Says which file it was when one cannot be read."""
    try:
        yield
    except OSError as error:
        raise ModelLoadError(f"The weight file {path} cannot be read: {error}.") from error
    except SafetensorError as error:
        with open(path, "rb") as file:
            is_pointer = file.read(64).startswith(b"version https://git-lfs")
        reason = "it is a Git LFS pointer, not the weights: run `git lfs pull`" if is_pointer else f"{error}"
        raise ModelLoadError(
            f"The weight file {path} is damaged or cut short ({reason}). Download it again."
        ) from error


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Parameters that are made within the `with` block have this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
