"""Qwen2.5-VL: Qwen2-VL with a vision transformer that attends within windows of an image in most blocks.

A few blocks (`fullatt_block_indexes` in config.json) attend over the whole image. Norms are RMS norms, and
feed-forward blocks are gated, as in the language model. Built on qwen2_vl.py. (https://arxiv.org/abs/2502.13923)

In a request's life: see models/interfaces.py. vLLM: vllm/model_executor/models/qwen2_5_vl.py. Left out: what
qwen2_vl.py leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from tracellm.engine.attention.encoder_attention import EncoderAttentionMetadata
from tracellm.engine.model_executor.layers.layernorm import RMSNorm
from tracellm.engine.model_executor.models.qwen2 import Qwen2MLP
from tracellm.engine.model_executor.models.qwen2_vl import (
    Qwen2VisionAttention,
    Qwen2VisionPatchEmbed,
    Qwen2VisionPatchMerger,
    Qwen2VisionRotaryEmbedding,
    Qwen2VLForConditionalGeneration,
    get_patch_places,
)
from tracellm.engine.model_executor.models.utils import check_config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VisionBlock", "Qwen2_5_VisionTransformer"]


class Qwen2_5_VisionBlock(nn.Module):
    """Attention, then the gated feed-forward block, each with a norm before it and a residual connection."""

    def __init__(self, config: PretrainedConfig, rotary_emb: Qwen2VisionRotaryEmbedding) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.hidden_size, eps=1e-6)
        self.norm2 = RMSNorm(config.hidden_size, eps=1e-6)
        self.attn = Qwen2VisionAttention(config.hidden_size, config.num_heads, rotary_emb)
        self.mlp = Qwen2MLP(config, bias=True)

    def forward(self, x: Tensor, cos_sin: Tensor, metadata: EncoderAttentionMetadata) -> Tensor:
        """Return [P, hidden] for [P, hidden]."""
        x = x + self.attn(self.norm1(x), cos_sin, metadata)
        return x + self.mlp(self.norm2(x))


class Qwen2_5_VisionTransformer(nn.Module):
    """Patch embedding, all blocks on the patches in the order of windows, the merger, the usual order again."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        check_config(config, hidden_act="silu")
        self.spatial_merge_size = config.spatial_merge_size
        self.squares_per_window = config.window_size // config.spatial_merge_size // config.patch_size
        self.fullatt_block_indexes = config.fullatt_block_indexes
        self.patch_embed = Qwen2VisionPatchEmbed(config, config.hidden_size)
        self.rotary_pos_emb = Qwen2VisionRotaryEmbedding(config, config.hidden_size // config.num_heads)
        self.blocks = nn.ModuleList(Qwen2_5_VisionBlock(config, self.rotary_pos_emb) for _ in range(config.depth))
        norm = RMSNorm(config.hidden_size, eps=1e-6)
        self.merger = Qwen2VisionPatchMerger(
            config.out_hidden_size, config.hidden_size, config.spatial_merge_size, norm
        )

    def forward(self, x: Tensor, grid_thw: list[list[int]]) -> Tensor:
        """See `Qwen2VisionTransformer.forward`."""
        windows = self.get_windows(grid_thw)  # of each square of patches that becomes one vector
        order = torch.argsort(windows, stable=True)
        patches_per_square = self.spatial_merge_size**2
        places = get_patch_places(grid_thw, self.spatial_merge_size).unflatten(0, (-1, patches_per_square))
        cos_sin = self.rotary_pos_emb.get_cos_sin(places[order].flatten(0, 1))
        of_windows = EncoderAttentionMetadata.from_seq_lens(
            (windows.bincount() * patches_per_square).tolist(), x.device
        )
        of_frames = EncoderAttentionMetadata.from_seq_lens([h * w for t, h, w in grid_thw for _ in range(t)], x.device)

        x = self.patch_embed(x).unflatten(0, (-1, patches_per_square))[order.to(x.device)].flatten(0, 1)
        for i, block in enumerate(self.blocks):
            x = block(x, cos_sin, of_frames if i in self.fullatt_block_indexes else of_windows)
        merged: Tensor = self.merger(x)
        return merged[order.argsort().to(x.device)]

    def get_windows(self, grid_thw: list[list[int]]) -> Tensor:
        """Return the number of the window of each square of patches, int64 [P / merge_size ** 2], from 0 on."""
        windows, count = [], 0
        for t, h, w in grid_thw:
            rows, columns = (torch.arange(n // self.spatial_merge_size) // self.squares_per_window for n in (h, w))
            down, across = int(rows[-1]) + 1, int(columns[-1]) + 1
            frame = (rows[:, None] * across + columns).flatten()
            frames = torch.arange(t)[:, None] * down * across
            windows.append((frames + frame).flatten() + count)
            count += t * down * across
        return torch.cat(windows)


class Qwen2_5_VLForConditionalGeneration(Qwen2VLForConditionalGeneration):
    """Vision transformer and language model with its output layer."""

    visual_cls: ClassVar = Qwen2_5_VisionTransformer
