"""Rotary position embedding: rotates pairs of dimensions of a query or key by an angle that grows with its position.

The score of a query with a key then depends on the distance between the two (RoFormer,
https://arxiv.org/abs/2104.09864). Ways to stretch a model beyond its trained length are in rope_scaling.py.

vLLM: vllm/model_executor/layers/rotary_embedding/. Left out: pairs of neighbours (GPT-J style).
"""

from typing import Any

import torch
from torch import Tensor, nn

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.rope_config import get_rope_parameters
from tracellm.engine.model_executor.layers.rope_scaling import ROPE_TYPES
from tracellm.engine.model_executor.ops import current_ops

__all__ = ["RotaryEmbedding", "get_rope"]


class RotaryEmbedding(nn.Module):
    """Rotates query and key heads; the cosines and sines of all positions are computed when the model is built."""

    cos_sin_cache: Tensor
    """[max_position, rotary_dim] in the model's dtype: rotary_dim / 2 cosines, then as many sines."""

    def __init__(self, head_size: int, inv_freq: Tensor, max_position: int, attention_factor: float = 1.0) -> None:
        """Compute the cosines and sines.

        Args:
            head_size: D; dimensions beyond rotary_dim are not rotated.
            inv_freq: float32 [rotary_dim / 2]: radians per position of each pair.
            max_position: positions are below it.
            attention_factor: factor of the cosines and sines.
        """
        super().__init__()
        self.ops = current_ops()
        self.head_size = head_size
        self.rotary_dim = 2 * len(inv_freq)
        angles = torch.outer(torch.arange(max_position, dtype=torch.float32), inv_freq)
        cache = torch.cat((angles.cos(), angles.sin()), dim=-1) * attention_factor
        self.register_buffer("cos_sin_cache", cache.to(torch.get_default_dtype()), persistent=False)

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return query [T, H * D] and key [T, K * D] rotated by their positions [T]."""
        query_heads = query.view(len(positions), -1, self.head_size)
        key_heads = key.view(len(positions), -1, self.head_size)
        rotated_query, rotated_key = self.ops.rotary_embedding(
            positions, query_heads[..., : self.rotary_dim], key_heads[..., : self.rotary_dim], self.cos_sin_cache
        )
        if self.rotary_dim < self.head_size:
            rotated_query = torch.cat((rotated_query, query_heads[..., self.rotary_dim :]), dim=-1)
            rotated_key = torch.cat((rotated_key, key_heads[..., self.rotary_dim :]), dim=-1)
        return rotated_query.flatten(1), rotated_key.flatten(1)


def get_rope(hf_config: Any, head_size: int, max_position: int, layer_type: str = "full_attention") -> RotaryEmbedding:
    """Return the rotary embedding of a config.json for positions below `max_position`.

    `layer_type` matters for models that rotate differently in different layers (Gemma 3: `sliding_attention`).

    Raises:
        ModelLoadError: an unknown type, or numbers that are missing or impossible.
    """
    parameters = get_rope_parameters(hf_config, layer_type)
    rotary_dim = int(head_size * parameters.partial_rotary_factor)
    if rotary_dim < 2 or rotary_dim % 2:
        raise ModelLoadError(
            f"config.json asks to rotate {rotary_dim} of a head's {head_size} dimensions; they are rotated in pairs."
        )
    inv_freq, attention_factor = ROPE_TYPES[parameters.rope_type](parameters, rotary_dim, max_position)
    return RotaryEmbedding(head_size, inv_freq, max_position, attention_factor)
