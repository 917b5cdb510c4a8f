"""Vision transformer of CLIP: the image encoder of LLaVA.

An image of a fixed size becomes square patches; one vector more, the class embedding, comes first. Positions are
learned, each block has a norm before it, and all vectors see one another. (https://arxiv.org/abs/2103.00020)

In a request's life: see models/interfaces.py. vLLM: vllm/model_executor/models/clip.py. Left out: the text encoder, the
pooled output, images of other sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata
from tracellm.engine.model_executor.layers.activation import get_act_fn
from tracellm.engine.model_executor.layers.attention import MultiHeadAttention
from tracellm.engine.model_executor.layers.linear import QKVParallelLinear, ReplicatedLinear
from tracellm.engine.model_executor.layers.vocab_embedding import Embedding

if TYPE_CHECKING:
    from transformers import CLIPVisionConfig

__all__ = [
    "CLIPMLP",
    "CLIPAttention",
    "CLIPEncoder",
    "CLIPEncoderLayer",
    "CLIPVisionEmbeddings",
    "CLIPVisionModel",
]


class CLIPVisionEmbeddings(nn.Module):
    """Class embedding and one vector for each patch, plus learned positions."""

    def __init__(self, config: CLIPVisionConfig) -> None:
        super().__init__()
        self.image_size, self.patch_size = config.image_size, config.patch_size
        num_patches = (config.image_size // config.patch_size) ** 2
        self.class_embedding = nn.Parameter(torch.empty(config.hidden_size), requires_grad=False)
        # patches do not overlap, so the checkpoint's convolution is a linear layer
        self.patch_embedding = ReplicatedLinear(
            config.num_channels * config.patch_size**2, config.hidden_size, bias=False
        )
        self.position_embedding = Embedding(num_patches + 1, config.hidden_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return [N, patches + 1, hidden] for N images [N, channels, image_size, image_size].

        Raises:
            ValueError: the images have another size.
        """
        if pixel_values.shape[2:] != (self.image_size, self.image_size):
            raise ValueError(f"Images must be {self.image_size} x {self.image_size}, got {list(pixel_values.shape)}.")
        size = self.patch_size
        columns = pixel_values.unflatten(3, (-1, size))
        tiles = columns.unflatten(2, (-1, size))  # [N, channels, rows, size, columns, size]
        patches = tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        first = self.class_embedding.expand(len(pixel_values), 1, -1)
        return torch.cat((first, self.patch_embedding(patches)), dim=1) + self.position_embedding.weight


class CLIPAttention(nn.Module):
    """Projections, attention within each image, output projection."""

    def __init__(self, config: CLIPVisionConfig) -> None:
        super().__init__()
        num_heads = config.num_attention_heads
        head_size = config.hidden_size // num_heads
        self.qkv_proj = QKVParallelLinear(
            config.hidden_size, head_size, num_heads, num_heads, bias=True, disable_tp=True
        )
        self.out_proj = ReplicatedLinear(config.hidden_size, config.hidden_size, bias=True)
        self.attn = MultiHeadAttention(num_heads, head_size, head_size**-0.5)

    def forward(self, hidden_states: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [P, hidden] for [P, hidden]."""
        query, key, value = self.qkv_proj(hidden_states).chunk(3, dim=-1)
        return self.out_proj(self.attn(query, key, value, metadata))


class CLIPMLP(nn.Module):
    """Feed-forward block: `fc2(act(fc1(x)))`."""

    def __init__(self, config: CLIPVisionConfig) -> None:
        super().__init__()
        self.activation_fn = get_act_fn(config.hidden_act)
        self.fc1 = ReplicatedLinear(config.hidden_size, config.intermediate_size, bias=True)
        self.fc2 = ReplicatedLinear(config.intermediate_size, config.hidden_size, bias=True)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return [P, hidden] for [P, hidden]."""
        return self.fc2(self.activation_fn(self.fc1(hidden_states)))


class CLIPEncoderLayer(nn.Module):
    """Attention, then the feed-forward block, each with a norm before it and a residual connection."""

    def __init__(self, config: CLIPVisionConfig) -> None:
        super().__init__()
        self.self_attn = CLIPAttention(config)
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = CLIPMLP(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [P, hidden] for [P, hidden]."""
        hidden_states = hidden_states + self.self_attn(self.layer_norm1(hidden_states), metadata)
        return hidden_states + self.mlp(self.layer_norm2(hidden_states))


class CLIPEncoder(nn.Module):
    """The first `num_layers` layers."""

    def __init__(self, config: CLIPVisionConfig, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CLIPEncoderLayer(config) for _ in range(num_layers))

    def forward(self, hidden_states: Tensor, metadata: EncoderAttentionMetadata) -> list[Tensor]:
        """Return the input and the outputs of all layers, [P, hidden] each."""
        states = [hidden_states]
        for layer in self.layers:
            states.append(layer(states[-1], metadata))
        return states


class CLIPVisionModel(nn.Module):
    """Embeddings, a norm, the layers up to the last one that is read."""

    def __init__(self, config: CLIPVisionConfig, feature_layers: list[int]) -> None:
        """Create the encoder; `feature_layers`: layers to read, 0 for the first one's input, negative from the end."""
        super().__init__()
        self.feature_layers = [i if i >= 0 else config.num_hidden_layers + 1 + i for i in feature_layers]
        self.embeddings = CLIPVisionEmbeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)  # so written in checkpoints
        self.encoder = CLIPEncoder(config, max(self.feature_layers))
        self.unused = (
            "post_layernorm.",
            *(f"encoder.layers.{i}." for i in range(len(self.encoder.layers), config.num_hidden_layers)),
        )
        """Beginnings of the names of tensors in a checkpoint that no output depends on."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return the outputs of the feature layers side by side, [N, patches + 1, hidden * feature layers].

        Args:
            pixel_values: N images, [N, channels, image_size, image_size].
        """
        hidden_states = self.pre_layrnorm(self.embeddings(pixel_values))
        count, length = hidden_states.shape[:2]
        metadata = EncoderAttentionMetadata.from_seq_lens([length] * count, pixel_values.device)
        states = self.encoder(hidden_states.flatten(0, 1), metadata)
        return torch.cat([states[i] for i in self.feature_layers], dim=-1).unflatten(0, (count, length))
