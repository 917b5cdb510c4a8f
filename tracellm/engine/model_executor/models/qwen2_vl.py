"""Qwen2-VL: a vision transformer for images of any size, and Qwen2 with positions in time, height and width.

An image comes as a grid of patches (h x w, each 14 x 14 pixels by default). The vision transformer attends over each
image by itself, with rotary positions in two dimensions, and merges each 2 x 2 patches to one vector of the language
model's width. These vectors replace the image's placeholder tokens. (https://arxiv.org/abs/2409.12191)

The file goes from the smallest block to the whole model, as qwen2.py does. qwen2_5_vl.py and qwen3_vl.py build on it.

In a request's life: see models/interfaces.py. vLLM: vllm/model_executor/models/qwen2_vl.py. Left out: video,
parallelism, quantization.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata
from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.rope_config import get_rope_parameters
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.model_executor.layers.activation import get_act_fn
from tracellm.engine.model_executor.layers.attention import MultiHeadAttention
from tracellm.engine.model_executor.layers.linear import ReplicatedLinear
from tracellm.engine.model_executor.models.interfaces import (
    SupportsMRoPE,
    SupportsMultiModal,
    init_language_model,
)
from tracellm.engine.model_executor.models.qwen2 import Qwen2ForCausalLM
from tracellm.engine.model_executor.models.utils import (
    IntermediateTensors,
    flatten_weight,
    load_parameters,
    rename_weights,
)
from tracellm.engine.model_executor.ops import current_ops
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "Qwen2VLForConditionalGeneration",
    "Qwen2VisionAttention",
    "Qwen2VisionBlock",
    "Qwen2VisionMLP",
    "Qwen2VisionPatchEmbed",
    "Qwen2VisionPatchMerger",
    "Qwen2VisionRotaryEmbedding",
    "Qwen2VisionTransformer",
]


class Qwen2VisionPatchEmbed(nn.Module):
    """One vector for each patch. Patches do not overlap, so the checkpoint's convolution is a linear layer."""

    def __init__(self, config: PretrainedConfig, embed_dim: int, bias: bool = False) -> None:
        super().__init__()
        pixels = config.temporal_patch_size * config.patch_size**2
        self.proj = ReplicatedLinear(config.in_channels * pixels, embed_dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return [P, embed_dim] for the numbers of P patches, [P, channels * frames * height * width]."""
        return self.proj(x)


class Qwen2VisionRotaryEmbedding(nn.Module):
    """Rotates a head's first pairs of dimensions by the patch's row in the image, the others by its column."""

    inv_freq: Tensor
    """float32 [head_size / 4]: radians per row or column of each pair."""

    def __init__(self, config: PretrainedConfig, head_size: int) -> None:
        super().__init__()
        self.ops = current_ops()
        self.head_size = head_size
        theta = (getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0)
        exponents = torch.arange(0, head_size // 2, 2, dtype=torch.float32) / (head_size // 2)
        self.register_buffer("inv_freq", 1.0 / theta**exponents, persistent=False)

    def get_cos_sin(self, places: Tensor) -> Tensor:
        """Return cosines and sines, float32 [P, head_size], of patches in the rows and columns `places` [P, 2]."""
        angles = (places.to(self.inv_freq.device)[:, :, None] * self.inv_freq).flatten(1)
        return torch.cat((angles.cos(), angles.sin()), dim=-1)

    def forward(self, query: Tensor, key: Tensor, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return query and key [P, H * D] rotated by the rows of `cos_sin`, in float32 as in training."""
        patches = torch.arange(len(query), device=query.device)
        query_heads, key_heads = (x.float().unflatten(-1, (-1, self.head_size)) for x in (query, key))
        rotated_query, rotated_key = self.ops.rotary_embedding(patches, query_heads, key_heads, cos_sin)
        return rotated_query.flatten(1).to(query.dtype), rotated_key.flatten(1).to(key.dtype)


class Qwen2VisionMLP(nn.Module):
    """Feed-forward block: `fc2(act(fc1(x)))`."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        hidden_dim = int(config.embed_dim * config.mlp_ratio)
        self.fc1 = ReplicatedLinear(config.embed_dim, hidden_dim, bias=True)
        self.act = get_act_fn(config.hidden_act)
        self.fc2 = ReplicatedLinear(hidden_dim, config.embed_dim, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return [P, embed_dim] for [P, embed_dim]."""
        return self.fc2(self.act(self.fc1(x)))


class Qwen2VisionAttention(nn.Module):
    """Projections, rotary embedding, attention within each segment, output projection."""

    def __init__(self, embed_dim: int, num_heads: int, rotary_emb: Qwen2VisionRotaryEmbedding) -> None:
        super().__init__()
        head_size = embed_dim // num_heads
        self.qkv = ReplicatedLinear(embed_dim, 3 * embed_dim, bias=True)
        self.proj = ReplicatedLinear(embed_dim, embed_dim, bias=True)
        self.rotary_emb = rotary_emb
        self.attn = MultiHeadAttention(num_heads, head_size, head_size**-0.5)

    def forward(self, x: Tensor, cos_sin: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [P, embed_dim] for [P, embed_dim]."""
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        query, key = self.rotary_emb(query, key, cos_sin)
        return self.proj(self.attn(query, key, value, metadata))


class Qwen2VisionBlock(nn.Module):
    """Attention, then the feed-forward block, each with a norm before it and a residual connection."""

    def __init__(self, config: PretrainedConfig, rotary_emb: Qwen2VisionRotaryEmbedding) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.embed_dim, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.embed_dim, eps=1e-6)
        self.attn = Qwen2VisionAttention(config.embed_dim, config.num_heads, rotary_emb)
        self.mlp = Qwen2VisionMLP(config)

    def forward(self, x: Tensor, cos_sin: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [P, embed_dim] for [P, embed_dim]."""
        x = x + self.attn(self.norm1(x), cos_sin, metadata)
        return x + self.mlp(self.norm2(x))


class Qwen2VisionPatchMerger(nn.Module):
    """Merges neighbouring patches, which follow one another in the batch, to one vector of the language model."""

    def __init__(self, output_dim: int, context_dim: int, merge_size: int, norm: nn.Module) -> None:
        super().__init__()
        self.merged_dim = context_dim * merge_size**2
        self.ln_q = norm
        self.mlp = nn.Sequential(
            ReplicatedLinear(self.merged_dim, self.merged_dim, bias=True),
            nn.GELU(),
            ReplicatedLinear(self.merged_dim, output_dim, bias=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return [P / merge_size ** 2, output_dim] for [P, context_dim]."""
        merged: Tensor = self.mlp(self.ln_q(x).view(-1, self.merged_dim))
        return merged


class Qwen2VisionTransformer(nn.Module):
    """Patch embedding, all blocks, the merger."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.spatial_merge_size = config.spatial_merge_size
        self.patch_embed = Qwen2VisionPatchEmbed(config, config.embed_dim)
        self.rotary_pos_emb = Qwen2VisionRotaryEmbedding(config, config.embed_dim // config.num_heads)
        self.blocks = nn.ModuleList(Qwen2VisionBlock(config, self.rotary_pos_emb) for _ in range(config.depth))
        norm = nn.LayerNorm(config.embed_dim, eps=1e-6)
        self.merger = Qwen2VisionPatchMerger(config.hidden_size, config.embed_dim, self.spatial_merge_size, norm)

    def forward(self, x: Tensor, grid_thw: list[list[int]]) -> Tensor:
        """Return vectors of the language model for all patches, [P / merge_size ** 2, hidden].

        Args:
            x: the numbers of P patches, image after image, [P, channels * frames * height * width].
            grid_thw: for each image its numbers of frames, and of patches in height and width.
        """
        cos_sin = self.rotary_pos_emb.get_cos_sin(get_patch_places(grid_thw, self.spatial_merge_size))
        metadata = EncoderAttentionMetadata.from_seq_lens([h * w for t, h, w in grid_thw for _ in range(t)], x.device)
        x = self.patch_embed(x)
        for block in self.blocks:
            x = block(x, cos_sin, metadata)
        merged: Tensor = self.merger(x)
        return merged


def get_patch_places(grid_thw: list[list[int]], merge_size: int) -> Tensor:
    """Return row and column of each patch in its image, int64 [P, 2], in the order of the batch.

    The patches that become one vector follow one another; these squares are in the usual order of reading.
    """
    places = []
    for t, h, w in grid_thw:
        grid = torch.cartesian_prod(torch.arange(h), torch.arange(w)).view(h, w, 2)
        squares = grid.unflatten(1, (-1, merge_size)).unflatten(0, (-1, merge_size)).transpose(1, 2)
        places.append(squares.reshape(-1, 2).repeat(t, 1))
    return torch.cat(places)


class Qwen2VLForConditionalGeneration(SupportsMultiModal, SupportsMRoPE):
    """Vision transformer and language model with its output layer."""

    mm_fields: ClassVar = {"pixel_values": "flat", "image_grid_thw": "batched"}

    hf_to_vllm_prefixes: ClassVar = {
        "model.language_model.": "language_model.model.",  # written by transformers 4.52 to 4.57
        "model.visual.": "visual.",
        "lm_head.": "language_model.lm_head.",
        "model.": "language_model.model.",  # all others
    }
    """Beginnings of the tensors' names in checkpoints, and of the parameters' names here."""

    visual_cls: ClassVar[type[nn.Module]] = Qwen2VisionTransformer
    language_model_cls: ClassVar[type[Qwen2ForCausalLM]] = Qwen2ForCausalLM
    mrope_interleaved: ClassVar = False

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config, prefix)
        config = vllm_config.model_config.hf_config
        self.dtype = vllm_config.model_config.dtype
        self.spatial_merge_size = config.vision_config.spatial_merge_size
        self.visual = self.visual_cls(config.vision_config)
        rope = get_rope_parameters(config.text_config)
        if rope.mrope_section is None or rope.mrope_interleaved != self.mrope_interleaved:
            raise ModelLoadError(
                f"config.json must set `mrope_section` for a model of the type `{config.model_type}`, and "
                f"`mrope_interleaved` to {self.mrope_interleaved}."
            )
        self.language_model = init_language_model(vllm_config, f"{prefix}language_model.", self.language_model_cls)

    def get_multimodal_embeddings(self, **kwargs: Tensor) -> list[Tensor]:
        """See `SupportsMultiModal.get_multimodal_embeddings`.

        Tensors: pixel_values [patches of all images, numbers of a patch], image_grid_thw int [images, 3].
        """
        grid_thw: list[list[int]] = kwargs["image_grid_thw"].tolist()
        pixel_values = kwargs["pixel_values"].to(self.dtype)
        lengths = [t * h * w // self.spatial_merge_size**2 for t, h, w in grid_thw]
        return list(self.visual(pixel_values, grid_thw).split(lengths))

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[Tensor, int]:
        """See `SupportsMRoPE.get_mrope_input_positions`.

        A text token has one position. The tokens of an image have one position in time, and their rows and columns
        count on from it; the text after it begins after the greatest of these positions.

        Raises:
            ValueError: an image has another number of placeholder tokens than its grid has squares.
        """
        pieces, end, position = [], 0, 0
        for feature in sorted(mm_features, key=lambda feature: feature.mm_position.offset):
            assert feature.data is not None
            t, h, w = feature.data["image_grid_thw"].tolist()
            h, w = h // self.spatial_merge_size, w // self.spatial_merge_size
            offset, length = feature.mm_position.offset, feature.mm_position.length
            if length != t * h * w:
                raise ValueError(f"An image of {t} x {h} x {w} tokens has {length} placeholder tokens in the prompt.")
            pieces.append(torch.arange(offset - end).expand(3, -1) + position)
            position += offset - end
            pieces.append(torch.cartesian_prod(*map(torch.arange, (t, h, w))).view(-1, 3).T + position)
            position += max(t, h, w)
            end = offset + length
        pieces.append(torch.arange(len(input_tokens) - end).expand(3, -1) + position)
        return torch.cat(pieces, dim=1), position - end

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`; positions [3, T], or [T] for text only, inputs_embeds [T, hidden] instead of ids."""
        return self.language_model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """See `CausalLM.compute_logits`."""
        return self.language_model.compute_logits(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """See `CausalLM.load_weights`."""
        renamed = rename_weights(weights, self.hf_to_vllm_prefixes)
        flattened = flatten_weight(renamed, "visual.patch_embed.proj.weight")
        return load_parameters(self, flattened, ignore=("inv_freq", "language_model.lm_head."))
