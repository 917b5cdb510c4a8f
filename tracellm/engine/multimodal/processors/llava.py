"""Images of LLaVA 1.5: resized and cropped to the size of its CLIP encoder, one token for each patch.

vLLM: vllm/model_executor/models/llava.py::LlavaMultiModalProcessor. Left out: Pixtral, Mantis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.vllm_config import ModelConfig
from tracellm.engine.multimodal.inputs import MultiModalKwargsItem
from tracellm.engine.multimodal.processing import BaseMultiModalProcessor, PromptReplacement
from tracellm.engine.multimodal.processors.hf import get_image_processor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["LlavaMultiModalProcessor"]


class LlavaMultiModalProcessor(BaseMultiModalProcessor):
    """Processor of LLaVA. An item has `pixel_values` [3, height, width]."""

    def __init__(self, model_config: ModelConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        """See `BaseMultiModalProcessor`."""
        self.image_processor = get_image_processor(model_config.model)
        super().__init__(model_config, tokenizer)

    def _get_prompt_updates(self) -> Sequence[PromptReplacement]:
        token = self.hf_config.image_token_index
        tokens = [token] * self.get_max_tokens_per_item()["image"]
        return [PromptReplacement("image", token, lambda item: tokens)]

    def get_placeholder_str(self, modality: str, number: int) -> str:
        """See `BaseMultiModalProcessor`."""
        return "<image>"

    def _call_hf_processor(
        self, modality: str, items: list[Any], mm_kwargs: Mapping[str, Any]
    ) -> list[MultiModalKwargsItem]:
        pixels = self.image_processor(images=items, return_tensors="pt", **mm_kwargs)["pixel_values"]
        return [{"pixel_values": one.clone()} for one in pixels]

    def get_max_tokens_per_item(self) -> dict[str, int]:
        """Return the tokens of an image, the same for all."""
        vision = self.hf_config.vision_config
        num_patches = (vision.image_size // vision.patch_size) ** 2
        has_class_token = self.hf_config.vision_feature_select_strategy == "full"
        return {"image": num_patches + has_class_token}
