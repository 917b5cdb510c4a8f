"""Sound of Qwen2-Audio: a log-mel spectrogram of 30 seconds, of which four frames of 10 ms make a token.

vLLM: vllm/model_executor/models/qwen2_audio.py::Qwen2AudioMultiModalProcessor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.config.vllm_config import ModelConfig
from tracellm.engine.multimodal.inputs import MultiModalKwargsItem
from tracellm.engine.multimodal.parse import MultiModalDataParser
from tracellm.engine.multimodal.processing import BaseMultiModalProcessor, PromptReplacement
from tracellm.engine.multimodal.processors.hf import get_feature_extractor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["Qwen2AudioMultiModalProcessor"]


class Qwen2AudioMultiModalProcessor(BaseMultiModalProcessor):
    """Processor of Qwen2-Audio.

    An item has `input_features` [mel bins, 3000 frames] and `feature_attention_mask` [3000].
    """

    def __init__(self, model_config: ModelConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        """See `BaseMultiModalProcessor`."""
        self.feature_extractor = get_feature_extractor(model_config.model)
        super().__init__(model_config, tokenizer)

    def _get_data_parser(self) -> MultiModalDataParser:
        return MultiModalDataParser(self.feature_extractor.sampling_rate)

    def _get_prompt_updates(self) -> Sequence[PromptReplacement]:
        token = self.hf_config.audio_token_index

        def replacement(item: MultiModalKwargsItem) -> list[int]:
            num_tokens = _num_tokens(int(item["feature_attention_mask"].sum()))
            if num_tokens < 1:
                raise InvalidRequestError("A sound is too short: it has less than the 40 ms of a token.")
            return [token] * num_tokens

        return [PromptReplacement("audio", token, replacement)]

    def get_placeholder_str(self, modality: str, number: int) -> str:
        """See `BaseMultiModalProcessor`."""
        return f"Audio {number}: <|audio_bos|><|AUDIO|><|audio_eos|>"

    def _call_hf_processor(
        self, modality: str, items: list[Any], mm_kwargs: Mapping[str, Any]
    ) -> list[MultiModalKwargsItem]:
        extractor = self.feature_extractor
        longest = extractor.n_samples
        for number, item in enumerate(items):
            if len(item) > longest:
                raise InvalidRequestError(
                    f"audio {number} lasts {len(item) / extractor.sampling_rate:.1f} s; the model takes at most "
                    f"{longest / extractor.sampling_rate:.0f} s. Cut it."
                )
        found = extractor(
            items,
            sampling_rate=extractor.sampling_rate,
            return_attention_mask=True,
            padding="max_length",
            return_tensors="pt",
            **mm_kwargs,
        )
        return [
            {"input_features": features.clone(), "feature_attention_mask": mask.clone()}
            for features, mask in zip(found["input_features"], found["attention_mask"], strict=True)
        ]

    def get_max_tokens_per_item(self) -> dict[str, int]:
        """Return the tokens of 30 seconds of sound."""
        return {"audio": _num_tokens(self.feature_extractor.nb_max_frames)}


def _num_tokens(num_frames: int) -> int:
    """Return the tokens of so many frames: a convolution halves them, and so does the pooling."""
    return ((num_frames - 1) // 2 + 1 - 2) // 2 + 1
