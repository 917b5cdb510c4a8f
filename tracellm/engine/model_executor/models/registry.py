"""Supported architectures, and the class of each.

To add one: docs/adding-a-model.md.

vLLM: vllm/model_executor/models/registry.py. Left out: encoders, models from other packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import ModelLoadError

if TYPE_CHECKING:
    from tracellm.engine.model_executor.models.utils import CausalLM

__all__ = ["get_supported_archs", "is_text_generation_model", "resolve_model_cls"]

_MODELS = {
    # architecture in config.json: module in tracellm.engine.model_executor.models
    "GPT2LMHeadModel": "gpt2",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "LlamaForCausalLM": "llama",
    "LlavaForConditionalGeneration": "llava",
    "MistralForCausalLM": "llama",
    "OPTForCausalLM": "opt",
    "Phi3ForCausalLM": "phi3",
    "Qwen2AudioForConditionalGeneration": "qwen2_audio",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
}


def get_supported_archs() -> list[str]:
    """Return the supported architectures, by their names in config.json."""
    return sorted(_MODELS)


def is_text_generation_model(architectures: list[str] | None) -> bool:
    """Return whether the architecture has an output layer; unlike `Qwen2Model`, `Qwen2ForCausalLM` does."""
    return not any(_generating(name) != name for name in architectures or [])


def _generating(architecture: str) -> str:
    """Return `Qwen2ForCausalLM` for `Qwen2Model`, and any other name unchanged."""
    stem = architecture.removesuffix("Model").removesuffix("Text")
    names = [f"{stem}{suffix}" for suffix in ("ForCausalLM", "LMHeadModel") if stem != architecture]
    return next((name for name in names if name in _MODELS), architecture)


def resolve_model_cls(architectures: list[str] | None) -> "type[CausalLM]":
    """Return the class of the first supported architecture in config.json's `architectures`, importing only its module.

    A model without an output layer, such as `Qwen2Model`, has the class of the model with one.

    Raises:
        ModelLoadError: no architecture is supported.
    """
    for architecture in map(_generating, architectures or []):
        if architecture in _MODELS:
            module = import_module(f"tracellm.engine.model_executor.models.{_MODELS[architecture]}")
            return getattr(module, architecture)
    found = "names no `architectures`" if not architectures else f"names the architecture {', '.join(architectures)}"
    raise ModelLoadError(f"config.json {found}, which cannot run here. Supported: {', '.join(get_supported_archs())}.")
