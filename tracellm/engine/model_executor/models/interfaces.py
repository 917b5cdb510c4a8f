"""Interfaces of models that read images or sound, beside `CausalLM`.

In a request's life: the model runner calls `get_multimodal_embeddings` in the step that first needs an item, caches the
result, and in each step passes the rows that the step's tokens need to `get_input_embeddings`. The result enters the
model's `forward` as `inputs_embeds`.

vLLM: vllm/model_executor/models/interfaces.py, and `init_vllm_registered_model` in models/utils.py. Left out: video,
embeddings as inputs, encoder data parallelism.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.model_executor.models.registry import resolve_model_cls
from tracellm.engine.model_executor.models.utils import CausalLM, merge_multimodal_embeddings

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.model_executor.models.qwen2 import Qwen2ForCausalLM
    from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec

__all__ = ["SupportsMRoPE", "SupportsMultiModal", "init_language_model"]


class SupportsMultiModal(CausalLM):
    """Model whose prompts may contain images or sounds, as placeholder tokens: encoders around a language model."""

    packed_modules_mapping: ClassVar = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }
    mm_fields: ClassVar[dict[str, Literal["flat", "batched"]]]
    """Tensors of `get_multimodal_embeddings`, by name; those of several items are concatenated along dimension 0
    (`flat`) or stacked (`batched`)."""
    language_model: Qwen2ForCausalLM

    def get_language_model(self) -> Qwen2ForCausalLM:
        """Return the part that reads the embeddings and generates text."""
        return self.language_model

    @abstractmethod
    def get_multimodal_embeddings(self, **kwargs: Tensor) -> list[Tensor]:
        """Return one tensor [tokens of the item, hidden] for each item, from the tensors named in `mm_fields`."""

    def get_input_embeddings(
        self,
        input_ids: Tensor,
        multimodal_embeddings: list[Tensor] | None = None,
        is_multimodal: Tensor | None = None,
    ) -> Tensor:
        """Return the input vectors [T, hidden] for ids int [T], those of items in their places.

        With Qwen3-VL's embeddings [N, hidden * (1 + levels)] all vectors have that width, the text's filled with zeros.

        Args:
            input_ids: token ids, placeholders included.
            multimodal_embeddings: rows of the items, in the order of their places; None or empty: text only.
            is_multimodal: bool [T]: the places, as many as there are rows.

        Raises:
            ValueError: the numbers of places and rows differ, or there are rows but no places.
        """
        inputs_embeds = self.get_language_model().model.embed_input_ids(input_ids)
        if not multimodal_embeddings:
            return inputs_embeds
        further = multimodal_embeddings[0].shape[1] - inputs_embeds.shape[1]
        if further > 0:
            inputs_embeds = F.pad(inputs_embeds, (0, further))
        return merge_multimodal_embeddings(inputs_embeds, multimodal_embeddings, is_multimodal)


class SupportsMRoPE:
    """Model whose tokens have three positions each: in time, height and width (layers/rotary_embedding.py)."""

    @abstractmethod
    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[Tensor, int]:
        """Return the positions of a prompt, int64 [3, len(input_tokens)], and the delta.

        The token at index i after the prompt has the three positions i + delta.
        """


def init_language_model(
    vllm_config: VllmConfig, prefix: str, model_cls: type[Qwen2ForCausalLM] | None = None
) -> Qwen2ForCausalLM:
    """Return the language model within a model, built from the `text_config` of its config.json.

    Without `model_cls` the text_config has its architecture, or the `model_type` that it follows from.

    Raises:
        ModelLoadError: the architecture is not supported, or its `forward` does not take vectors instead of ids.
    """
    model_config = vllm_config.model_config
    text_config = copy(model_config.hf_text_config)
    if (tied := getattr(model_config.hf_config, "tie_word_embeddings", None)) is not None:
        text_config.tie_word_embeddings = tied  # the setting of the whole model counts, as in transformers
    if model_cls is None:
        model_cls = _resolve_language_model_cls(text_config, model_config.hf_config.model_type)
    return model_cls(vllm_config.with_hf_config(text_config), prefix=prefix)


def _resolve_language_model_cls(text_config: PretrainedConfig, model_type: str) -> type[Qwen2ForCausalLM]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # heavy

    from tracellm.engine.model_executor.models.qwen2 import Qwen2ForCausalLM

    by_model_type = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(text_config.model_type)
    model_cls = resolve_model_cls(text_config.architectures or [by_model_type])
    if not issubclass(model_cls, Qwen2ForCausalLM):
        raise ModelLoadError(
            f"config.json has the language model {model_cls.__name__} in a model of the type `{model_type}`, "
            "which cannot run here."
        )
    return model_cls
