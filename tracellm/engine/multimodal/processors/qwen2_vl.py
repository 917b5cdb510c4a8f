"""Images of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: as large as they are, in patches, four of which make a token.

vLLM: vllm/model_executor/models/qwen2_vl.py::Qwen2VLMultiModalProcessor. Left out: video.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.vllm_config import ModelConfig
from tracellm.engine.multimodal.inputs import MultiModalKwargsItem
from tracellm.engine.multimodal.processing import BaseMultiModalProcessor, PromptReplacement
from tracellm.engine.multimodal.processors.hf import get_image_processor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["Qwen2VLMultiModalProcessor"]

_LARGEST_SIDE = 9_999_999


class Qwen2VLMultiModalProcessor(BaseMultiModalProcessor):
    """Processor of Qwen2-VL and Qwen2.5-VL. An item has `pixel_values` [patches, 1176] and `image_grid_thw` [3]."""

    def __init__(self, model_config: ModelConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        """See `BaseMultiModalProcessor`."""
        self.image_processor = get_image_processor(model_config.model)
        super().__init__(model_config, tokenizer)

    def _get_prompt_updates(self) -> Sequence[PromptReplacement]:
        image_token = self.hf_config.image_token_id

        def replacement(item: MultiModalKwargsItem) -> list[int]:
            num_patches = int(item["image_grid_thw"].prod())
            return [image_token] * (num_patches // self.image_processor.merge_size**2)

        return [PromptReplacement("image", image_token, replacement)]

    def get_placeholder_str(self, modality: str, number: int) -> str:
        """See `BaseMultiModalProcessor`."""
        return "<|vision_start|><|image_pad|><|vision_end|>"

    def _call_hf_processor(
        self, modality: str, items: list[Any], mm_kwargs: Mapping[str, Any]
    ) -> list[MultiModalKwargsItem]:
        found = self.image_processor(images=items, return_tensors="pt", **mm_kwargs)
        grids = found["image_grid_thw"]
        pixels = found["pixel_values"].split(grids.prod(dim=-1).tolist())
        return [
            {"pixel_values": one.clone(), "image_grid_thw": grid.clone()}
            for one, grid in zip(pixels, grids, strict=True)
        ]

    def get_max_tokens_per_item(self) -> dict[str, int]:
        """Return the tokens of the largest image after resizing."""
        processor, kwargs = self.image_processor, self.config.mm_processor_kwargs
        smart_resize = import_module(type(processor).__module__).smart_resize
        side = processor.patch_size * processor.merge_size
        size = dict(processor.size) | dict(kwargs.get("size", {}))
        height, width = smart_resize(
            _LARGEST_SIDE,
            _LARGEST_SIDE,
            factor=side,
            min_pixels=kwargs.get("min_pixels", size["shortest_edge"]),
            max_pixels=kwargs.get("max_pixels", size["longest_edge"]),
        )
        return {"image": (height // side) * (width // side)}
