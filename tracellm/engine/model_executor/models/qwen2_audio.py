"""Qwen2-Audio: Whisper's encoder of sounds with a pooling layer, a projector, and Qwen2.

A sound comes as a log-mel spectrogram, padded to 30 seconds: 3000 frames. Two convolutions halve the frames, the
encoder attends over those of the sound without the padding, and pooling halves them again. Positions are those of a
text. (https://arxiv.org/abs/2407.10759)

In a request's life: see models/interfaces.py. vLLM: vllm/model_executor/models/qwen2_audio.py, which takes
transformers' encoder. Left out: embeddings as inputs, parallelism, quantization.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.model_executor.layers.activation import get_act_fn
from tracellm.engine.model_executor.layers.attention import MultiHeadAttention
from tracellm.engine.model_executor.layers.linear import ReplicatedLinear
from tracellm.engine.model_executor.layers.vocab_embedding import Embedding
from tracellm.engine.model_executor.models.interfaces import SupportsMultiModal, init_language_model
from tracellm.engine.model_executor.models.utils import IntermediateTensors, load_parameters, rename_weights

if TYPE_CHECKING:
    from transformers import Qwen2AudioConfig, Qwen2AudioEncoderConfig

__all__ = [
    "Qwen2AudioAttention",
    "Qwen2AudioEncoder",
    "Qwen2AudioEncoderLayer",
    "Qwen2AudioForConditionalGeneration",
    "Qwen2AudioMultiModalProjector",
]


class Qwen2AudioAttention(nn.Module):
    """Projections, attention within each sound, output projection; keys have no bias."""

    def __init__(self, config: Qwen2AudioEncoderConfig) -> None:
        super().__init__()
        size, num_heads = config.d_model, config.encoder_attention_heads
        head_size = size // num_heads
        self.q_proj = ReplicatedLinear(size, size, bias=True)
        self.k_proj = ReplicatedLinear(size, size, bias=False)
        self.v_proj = ReplicatedLinear(size, size, bias=True)
        self.out_proj = ReplicatedLinear(size, size, bias=True)
        self.attn = MultiHeadAttention(num_heads, head_size, head_size**-0.5)

    def forward(self, x: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [F, d_model] for [F, d_model]."""
        return self.out_proj(self.attn(self.q_proj(x), self.k_proj(x), self.v_proj(x), metadata))


class Qwen2AudioEncoderLayer(nn.Module):
    """Attention, then the feed-forward block, each with a norm before it and a residual connection."""

    def __init__(self, config: Qwen2AudioEncoderConfig) -> None:
        super().__init__()
        self.self_attn = Qwen2AudioAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.activation_fn = get_act_fn(config.activation_function)
        self.fc1 = ReplicatedLinear(config.d_model, config.encoder_ffn_dim, bias=True)
        self.fc2 = ReplicatedLinear(config.encoder_ffn_dim, config.d_model, bias=True)
        self.final_layer_norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [F, d_model] for [F, d_model]."""
        x = x + self.self_attn(self.self_attn_layer_norm(x), metadata)
        return x + self.fc2(self.activation_fn(self.fc1(self.final_layer_norm(x))))


class Qwen2AudioEncoder(nn.Module):
    """Convolutions, learned positions, all layers, pooling, the final norm."""

    def __init__(self, config: Qwen2AudioEncoderConfig) -> None:
        super().__init__()
        self.max_frames = 2 * config.max_source_positions
        self.conv1 = nn.Conv1d(config.num_mel_bins, config.d_model, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(config.d_model, config.d_model, kernel_size=3, stride=2, padding=1)
        self.embed_positions = Embedding(config.max_source_positions, config.d_model)
        self.layers = nn.ModuleList(Qwen2AudioEncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_norm = nn.LayerNorm(config.d_model)

    def forward(self, input_features: Tensor, num_frames: list[int]) -> list[Tensor]:
        """Return the vectors of each sound, [num_frames / 4, d_model].

        Args:
            input_features: spectrograms of N sounds, padded: [N, mel bins, 2 * max_source_positions].
            num_frames: frames of each sound without the padding.

        Raises:
            ValueError: the spectrograms have another length.
        """
        if input_features.shape[2] != self.max_frames:
            raise ValueError(f"Spectrograms must have {self.max_frames} frames, got {input_features.shape[2]}.")
        x = F.gelu(self.conv2(F.gelu(self.conv1(input_features)))).transpose(1, 2) + self.embed_positions.weight
        lengths = [(frames + 1) // 2 for frames in num_frames]
        x = torch.cat([sound[:length] for sound, length in zip(x, lengths, strict=True)])
        metadata = EncoderAttentionMetadata.from_seq_lens(lengths, x.device)
        for layer in self.layers:
            x = layer(x, metadata)
        # the mean of each two neighbours; a last one without a neighbour is dropped
        pooled = [sound[: len(sound) // 2 * 2].unflatten(0, (-1, 2)).mean(dim=1) for sound in x.split(lengths)]
        return [self.layer_norm(sound) for sound in pooled]


class Qwen2AudioMultiModalProjector(nn.Module):
    """One linear layer from the encoder's width to the language model's."""

    def __init__(self, config: Qwen2AudioConfig) -> None:
        super().__init__()
        self.linear = ReplicatedLinear(config.audio_config.d_model, config.text_config.hidden_size, bias=True)

    def forward(self, audio_features: Tensor) -> Tensor:
        """Return [F, hidden] for [F, d_model]."""
        return self.linear(audio_features)


class Qwen2AudioForConditionalGeneration(SupportsMultiModal):
    """Encoder of sounds, projector, and language model with its output layer."""

    mm_fields: ClassVar = {"input_features": "batched", "feature_attention_mask": "batched"}

    hf_to_vllm_prefixes: ClassVar = {
        "model.audio_tower.": "audio_tower.",  # names in transformers 5; files have those of the parameters here
        "model.multi_modal_projector.": "multi_modal_projector.",
        "model.language_model.": "language_model.model.",
        "lm_head.": "language_model.lm_head.",
    }
    """Beginnings of the tensors' names in checkpoints, and of the parameters' names here."""

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config, prefix)
        config = vllm_config.model_config.hf_config
        self.dtype = vllm_config.model_config.dtype
        self.audio_tower = Qwen2AudioEncoder(config.audio_config)
        self.multi_modal_projector = Qwen2AudioMultiModalProjector(config)
        self.language_model = init_language_model(vllm_config, f"{prefix}language_model.")

    def get_multimodal_embeddings(self, **kwargs: Tensor) -> list[Tensor]:
        """See `SupportsMultiModal.get_multimodal_embeddings`.

        Tensors: input_features [sounds, mel bins, frames], feature_attention_mask int [sounds, frames]: 1 where a frame
        is no padding, at the beginning.
        """
        num_frames = kwargs["feature_attention_mask"].sum(dim=1).tolist()
        sounds = self.audio_tower(kwargs["input_features"].to(self.dtype), num_frames)
        return [self.multi_modal_projector(sound) for sound in sounds]

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
        return load_parameters(self, renamed, ignore=("inv_freq", "language_model.lm_head."))
