"""Qwen3-VL: Qwen3 with M-RoPE, and a vision transformer whose early blocks feed early layers of it (DeepStack).

The outputs of a few blocks (`deepstack_visual_indexes` in config.json) are merged like the last one's, and the language
model's first layers add them to their outputs, level after level. So the vectors of an image are wider than those of a
text: `get_input_embeddings` widens these by zeros, and `Qwen3LLMModel` takes the levels apart. Patches have learned
positions, interpolated to the image's grid, and rotary ones. Built on qwen2_vl.py. (https://arxiv.org/abs/2511.21631)

In a request's life: see models/interfaces.py. vLLM: vllm/model_executor/models/qwen3_vl.py, which keeps the further
vectors in buffers of the model. Left out: what qwen2_vl.py leaves out.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata
from tracellm.engine.distributed.parallel_state import get_pp_group
from tracellm.engine.model_executor.layers.activation import get_act_fn
from tracellm.engine.model_executor.layers.linear import ReplicatedLinear
from tracellm.engine.model_executor.layers.vocab_embedding import Embedding
from tracellm.engine.model_executor.models.qwen2_vl import (
    Qwen2VisionAttention,
    Qwen2VisionPatchEmbed,
    Qwen2VisionRotaryEmbedding,
    Qwen2VLForConditionalGeneration,
    get_patch_places,
)
from tracellm.engine.model_executor.models.qwen3 import Qwen3ForCausalLM, Qwen3Model
from tracellm.engine.model_executor.models.utils import IntermediateTensors

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "Qwen3LLMForCausalLM",
    "Qwen3LLMModel",
    "Qwen3VLForConditionalGeneration",
    "Qwen3_VisionBlock",
    "Qwen3_VisionMLP",
    "Qwen3_VisionPatchMerger",
    "Qwen3_VisionTransformer",
]


class Qwen3_VisionMLP(nn.Module):
    """Feed-forward block: `linear_fc2(act(linear_fc1(x)))`."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.linear_fc1 = ReplicatedLinear(config.hidden_size, config.intermediate_size, bias=True)
        self.act_fn = get_act_fn(config.hidden_act)
        self.linear_fc2 = ReplicatedLinear(config.intermediate_size, config.hidden_size, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return [P, hidden] for [P, hidden]."""
        return self.linear_fc2(self.act_fn(self.linear_fc1(x)))


class Qwen3_VisionBlock(nn.Module):
    """Attention, then the feed-forward block, each with a norm before it and a residual connection."""

    def __init__(self, config: PretrainedConfig, rotary_emb: Qwen2VisionRotaryEmbedding) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.attn = Qwen2VisionAttention(config.hidden_size, config.num_heads, rotary_emb)
        self.mlp = Qwen3_VisionMLP(config)

    def forward(self, x: Tensor, cos_sin: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [P, hidden] for [P, hidden]."""
        x = x + self.attn(self.norm1(x), cos_sin, metadata)
        return x + self.mlp(self.norm2(x))


class Qwen3_VisionPatchMerger(nn.Module):
    """Merges neighbouring patches to one vector of the language model; its norm is over a patch, or over the merged."""

    def __init__(self, config: PretrainedConfig, use_postshuffle_norm: bool) -> None:
        super().__init__()
        self.merged_dim = config.hidden_size * config.spatial_merge_size**2
        self.use_postshuffle_norm = use_postshuffle_norm
        self.norm = nn.LayerNorm(self.merged_dim if use_postshuffle_norm else config.hidden_size, eps=1e-6)
        self.linear_fc1 = ReplicatedLinear(self.merged_dim, self.merged_dim, bias=True)
        self.act_fn = nn.GELU()
        self.linear_fc2 = ReplicatedLinear(self.merged_dim, config.out_hidden_size, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return [P / merge_size ** 2, out_hidden_size] for [P, hidden]."""
        merged = self.norm(x.view(-1, self.merged_dim) if self.use_postshuffle_norm else x).view(-1, self.merged_dim)
        return self.linear_fc2(self.act_fn(self.linear_fc1(merged)))


class Qwen3_VisionTransformer(nn.Module):
    """Patch embedding and positions, all blocks, the mergers."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.spatial_merge_size = config.spatial_merge_size
        self.num_grid_per_side = int(config.num_position_embeddings**0.5)
        self.deepstack_visual_indexes = list(config.deepstack_visual_indexes)
        self.patch_embed = Qwen2VisionPatchEmbed(config, config.hidden_size, bias=True)
        self.pos_embed = Embedding(config.num_position_embeddings, config.hidden_size)
        self.rotary_pos_emb = Qwen2VisionRotaryEmbedding(config, config.hidden_size // config.num_heads)
        self.blocks = nn.ModuleList(Qwen3_VisionBlock(config, self.rotary_pos_emb) for _ in range(config.depth))
        self.merger = Qwen3_VisionPatchMerger(config, use_postshuffle_norm=False)
        self.deepstack_merger_list = nn.ModuleList(
            Qwen3_VisionPatchMerger(config, use_postshuffle_norm=True) for _ in self.deepstack_visual_indexes
        )

    def forward(self, x: Tensor, grid_thw: list[list[int]]) -> Tensor:
        """See `Qwen2VisionTransformer.forward`; the result is [P / merge_size ** 2, hidden * (1 + levels)]."""
        cos_sin = self.rotary_pos_emb.get_cos_sin(get_patch_places(grid_thw, self.spatial_merge_size))
        metadata = EncoderAttentionMetadata.from_seq_lens([h * w for t, h, w in grid_thw for _ in range(t)], x.device)
        x = self.patch_embed(x) + torch.cat([self.get_positions(grid) for grid in grid_thw])
        levels = []
        for i, block in enumerate(self.blocks):
            x = block(x, cos_sin, metadata)
            if i in self.deepstack_visual_indexes:
                levels.append(self.deepstack_merger_list[self.deepstack_visual_indexes.index(i)](x))
        return torch.cat([self.merger(x), *levels], dim=1)

    def get_positions(self, grid: list[int]) -> Tensor:
        """Return the learned positions of an image's patches [t * h * w, hidden], interpolated in float32."""
        side, (_, h, w) = self.num_grid_per_side, grid
        table = self.pos_embed.weight.float().T.unflatten(1, (side, side))[None]  # [1, hidden, side, side]
        positions = F.interpolate(table, size=(h, w), mode="bilinear", align_corners=True)[0]
        rows, columns = get_patch_places([grid], self.spatial_merge_size).T.to(positions.device)
        return positions[:, rows, columns].T.to(self.pos_embed.weight.dtype)


class Qwen3LLMModel(Qwen3Model):
    """Qwen3 whose first layers add further vectors of images to their outputs."""

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor | IntermediateTensors:
        """See `Qwen2Model.forward`; `inputs_embeds` may be [T, hidden * (1 + levels)]: those of the layers follow.

        The vectors of layers in later pipeline stages go there with the hidden states.
        """
        residual, levels = None, []
        if intermediate_tensors is not None:
            hidden_states, residual, *levels = intermediate_tensors.tensors.values()
        elif inputs_embeds is not None:
            hidden_states, *levels = inputs_embeds.split(self.embed_tokens.weight.shape[1], dim=1)
        if not levels:
            return super().forward(input_ids, positions, intermediate_tensors, inputs_embeds)
        for layer in islice(self.layers, self.start_layer, self.end_layer):
            hidden_states, residual = layer(positions, hidden_states, residual)
            if levels:
                hidden_states = hidden_states + levels.pop(0)
        if not get_pp_group().is_last_rank:
            assert residual is not None
            further = {f"deepstack_input_embeds_{i}": level for i, level in enumerate(levels)}
            return IntermediateTensors({"hidden_states": hidden_states, "residual": residual, **further})
        hidden_states, _ = self.norm(hidden_states, residual)
        return hidden_states


class Qwen3LLMForCausalLM(Qwen3ForCausalLM):
    """Language model of Qwen3-VL with its output layer."""

    model_cls: ClassVar = Qwen3LLMModel


class Qwen3VLForConditionalGeneration(Qwen2VLForConditionalGeneration):
    """Vision transformer and language model with its output layer."""

    visual_cls: ClassVar = Qwen3_VisionTransformer
    language_model_cls: ClassVar = Qwen3LLMForCausalLM
    mrope_interleaved: ClassVar = True
