"""Registry of multimodal processors, by the architecture in config.json.

In a request's life: start-up, when the front end makes its processor. Their modules are imported for such models only.

vLLM: vllm/multimodal/registry.py::MultiModalRegistry, which model files register with a decorator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

    from tracellm.engine.config.vllm_config import ModelConfig
    from tracellm.engine.multimodal.processing import BaseMultiModalProcessor

__all__ = ["MULTIMODAL_REGISTRY", "MultiModalRegistry"]

_PROCESSORS = {
    # architecture: module in tracellm.engine.multimodal.processors, class
    "LlavaForConditionalGeneration": ("llava", "LlavaMultiModalProcessor"),
    "Qwen2AudioForConditionalGeneration": ("qwen2_audio", "Qwen2AudioMultiModalProcessor"),
    "Qwen2VLForConditionalGeneration": ("qwen2_vl", "Qwen2VLMultiModalProcessor"),
    "Qwen2_5_VLForConditionalGeneration": ("qwen2_vl", "Qwen2VLMultiModalProcessor"),
    "Qwen3VLForConditionalGeneration": ("qwen2_vl", "Qwen2VLMultiModalProcessor"),
}


class MultiModalRegistry:
    """Processors of the supported multimodal models."""

    def supports_multimodal_inputs(self, hf_config: PretrainedConfig) -> bool:
        """Return whether the model takes images or sounds."""
        return any(name in _PROCESSORS for name in getattr(hf_config, "architectures", None) or [])

    def create_processor(
        self, model_config: ModelConfig, tokenizer: PreTrainedTokenizerFast | None
    ) -> BaseMultiModalProcessor:
        """Create the processor of a multimodal model.

        Raises:
            ModelLoadError: a file of the checkpoint is missing or damaged.
            EngineError: a library of `tracellm[multimodal]` is missing.
        """
        architectures = model_config.hf_config.architectures or []
        module, name = next(_PROCESSORS[one] for one in architectures if one in _PROCESSORS)
        processor_cls = getattr(import_module(f"tracellm.engine.multimodal.processors.{module}"), name)
        processor: BaseMultiModalProcessor = processor_cls(model_config, tokenizer)
        return processor

    def get_max_tokens_per_item_by_modality(self, model_config: ModelConfig) -> dict[str, int]:
        """Return the largest number of tokens of an item, by modality; modalities with a limit of 0 are left out.

        Raises:
            ModelLoadError: a file of the checkpoint is missing or damaged.
        """
        assert model_config.multimodal_config is not None
        limit = model_config.multimodal_config.get_limit_per_prompt
        most = self.create_processor(model_config, None).get_max_tokens_per_item()
        return {modality: tokens for modality, tokens in most.items() if limit(modality)}


MULTIMODAL_REGISTRY = MultiModalRegistry()
"""The registry of this process."""
