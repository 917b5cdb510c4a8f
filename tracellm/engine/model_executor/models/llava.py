"""LLaVA: CLIP's image encoder, a projector of two layers, and Llama or a relative of it.

An image has a fixed number of placeholder tokens, one for each patch. Positions are those of a text.
(https://arxiv.org/abs/2310.03744)

In a request's life: see models/interfaces.py. vLLM: vllm/model_executor/models/llava.py. Left out: other image
encoders (SigLIP, Pixtral), embeddings as inputs, parallelism, quantization.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.model_executor.layers.activation import get_act_fn
from tracellm.engine.model_executor.layers.linear import ReplicatedLinear
from tracellm.engine.model_executor.models.clip import CLIPVisionModel
from tracellm.engine.model_executor.models.interfaces import SupportsMultiModal, init_language_model
from tracellm.engine.model_executor.models.utils import (
    IntermediateTensors,
    flatten_weight,
    load_parameters,
    rename_weights,
)

if TYPE_CHECKING:
    from transformers import LlavaConfig

__all__ = ["LlavaForConditionalGeneration", "LlavaMultiModalProjector"]


class LlavaMultiModalProjector(nn.Module):
    """Two linear layers from the image encoder's width to the language model's."""

    def __init__(self, config: LlavaConfig, input_size: int) -> None:
        super().__init__()
        hidden_size, bias = config.text_config.hidden_size, config.multimodal_projector_bias
        self.linear_1 = ReplicatedLinear(input_size, hidden_size, bias=bias)
        self.act = get_act_fn(config.projector_hidden_act)
        self.linear_2 = ReplicatedLinear(hidden_size, hidden_size, bias=bias)

    def forward(self, image_features: Tensor) -> Tensor:
        """Return [N, patches, hidden] for [N, patches, input_size]."""
        return self.linear_2(self.act(self.linear_1(image_features)))


class LlavaForConditionalGeneration(SupportsMultiModal):
    """Image encoder, projector, and language model with its output layer."""

    mm_fields: ClassVar = {"pixel_values": "batched"}

    hf_to_vllm_prefixes: ClassVar = {
        "model.vision_tower.vision_model.": "vision_tower.",  # written by transformers 4.52 to 4.57
        "model.vision_tower.": "vision_tower.",
        "model.multi_modal_projector.": "multi_modal_projector.",
        "model.language_model.": "language_model.model.",
        "lm_head.": "language_model.lm_head.",
        "vision_tower.vision_model.": "vision_tower.",  # all others
    }
    """Beginnings of the tensors' names in checkpoints, and of the parameters' names here."""

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config, prefix)
        config = vllm_config.model_config.hf_config
        self.dtype = vllm_config.model_config.dtype
        if config.vision_config.model_type != "clip_vision_model":
            raise ModelLoadError(
                f"config.json has an image encoder of the type `{config.vision_config.model_type}`; "
                "LLaVA runs here with `clip_vision_model` only."
            )
        layers = config.vision_feature_layer
        layers = [layers] if isinstance(layers, int) else list(layers)
        self.vision_tower = CLIPVisionModel(config.vision_config, layers)
        self.first_feature = 1 if config.vision_feature_select_strategy == "default" else 0  # without the class's
        self.multi_modal_projector = LlavaMultiModalProjector(config, config.vision_config.hidden_size * len(layers))
        self.language_model = init_language_model(vllm_config, f"{prefix}language_model.")

    def get_multimodal_embeddings(self, **kwargs: Tensor) -> list[Tensor]:
        """See `SupportsMultiModal.get_multimodal_embeddings`.

        Tensors: pixel_values [images, channels, image_size, image_size].
        """
        features = self.vision_tower(kwargs["pixel_values"].to(self.dtype))[:, self.first_feature :]
        return list(self.multi_modal_projector(features))

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`; inputs_embeds [T, hidden] instead of ids."""
        return self.language_model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """See `CausalLM.compute_logits`."""
        return self.language_model.compute_logits(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """See `CausalLM.load_weights`."""
        renamed = rename_weights(weights, self.hf_to_vllm_prefixes)
        flattened = flatten_weight(renamed, "vision_tower.embeddings.patch_embedding.weight")
        unused = (f"vision_tower.{name}" for name in self.vision_tower.unused)
        return load_parameters(
            self, flattened, ignore=("inv_freq", "embeddings.position_ids", "language_model.lm_head.", *unused)
        )
