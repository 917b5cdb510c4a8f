"""Loads a model in three stages, each its own method: find the files, place the model on the device, read the weights.

At start-up: `Worker.load_model` -> `GPUModelRunner.load_model` -> `DefaultModelLoader.load_model`.

vLLM: vllm/model_executor/model_loader/default_loader.py::DefaultModelLoader and base_loader.py. Left out: other weight
formats, quantization.
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
from tracellm.engine.model_executor.models.adapters import as_embedding_model
from tracellm.engine.model_executor.models.registry import resolve_model_cls
from tracellm.engine.model_executor.models.utils import CausalLM, check_supports_pp

__all__ = ["DefaultModelLoader", "LoadedWeights", "Placement", "default_dtype"]


@dataclass(frozen=True)
class Placement:
    """Result of the second stage."""

    device: torch.device
    num_bytes: int
    """Bytes of parameters and buffers."""


@dataclass(frozen=True)
class LoadedWeights:
    """Result of the third stage."""

    num_tensors: int
    """Tensors of the checkpoint that were used."""
    num_parameters: int
    """Parameter count; tied weights counted once."""
    dtype: torch.dtype
    """Dtype of the model's parameters."""


class DefaultModelLoader:
    """Loads safetensors checkpoints."""

    def load_model(self, vllm_config: VllmConfig) -> CausalLM:
        """Return the configured model on its device, ready for `forward`.

        Raises:
            ModelLoadError: an unsupported architecture, or files that are missing, damaged or do not fit config.json.
        """
        model_config = vllm_config.model_config
        model_class = resolve_model_cls(model_config.hf_config.architectures)
        if model_config.is_pooling_model:
            model_class = as_embedding_model(model_class)
        if quantization := getattr(model_config.hf_config, "quantization_config", None):
            method = quantization.get("quant_method", "?") if isinstance(quantization, dict) else quantization
            raise ModelLoadError(
                f"The checkpoint is quantized ({method}), which is not supported; give an unquantized one."
            )
        if vllm_config.parallel_config.pipeline_parallel_size > 1:
            check_supports_pp(model_class)
        weight_files = self._prepare_weights(model_config.model)
        with default_dtype(model_config.dtype):
            model = model_class(vllm_config)
        self.place_on_device(model, vllm_config.device_config.device)
        self.load_weights(model, weight_files)
        return model

    def _prepare_weights(self, model: str) -> WeightFiles:
        """Stage 1: find the weight files of a directory or hub id."""
        return find_weight_files(model)

    def place_on_device(self, model: CausalLM, device: torch.device) -> Placement:
        """Stage 2: allocate the parameters on the device, still uninitialized, and move the buffers there."""
        for parameter in model.parameters():
            parameter.data = torch.empty_like(parameter, device=device)
        model.to(device)
        tensors = [*model.parameters(), *model.buffers()]
        return Placement(tensors[0].device, sum(tensor.nbytes for tensor in tensors))

    def load_weights(self, model: CausalLM, weight_files: WeightFiles) -> LoadedWeights:
        """Stage 3: copy each tensor into its parameter on the device, converted to the parameter's dtype.

        The host holds one tensor at a time.
        """
        num_tensors = model.load_weights(self._get_all_weights(weight_files))
        model.eval().requires_grad_(False)
        parameters = list(model.parameters())
        return LoadedWeights(num_tensors, sum(p.numel() for p in parameters), parameters[0].dtype)

    def _get_all_weights(self, weight_files: WeightFiles) -> Iterator[tuple[str, Tensor]]:
        """Yield name and tensor of every file, memory-mapped: bytes are read from the disk when they are copied."""
        for path in weight_files.files:
            with _readable(path), safe_open(path, framework="pt", device="cpu") as file:
                for name in file.keys():  # noqa: SIM118  (not a dictionary)
                    yield name, file.get_tensor(name)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name the file in the error message if it cannot be read."""
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
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Create parameters in this dtype within the `with` block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
