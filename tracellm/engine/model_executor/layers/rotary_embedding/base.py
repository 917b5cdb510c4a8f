"""The rotary embedding itself, and the frequencies of the plain one.

vLLM: vllm/model_executor/layers/rotary_embedding/base.py::RotaryEmbedding. Left out: pairs of neighbours (GPT-J style).
"""

import torch
from torch import Tensor, nn

from tracellm.engine.config.rope_config import RopeParameters
from tracellm.engine.model_executor.ops import current_ops

__all__ = ["RotaryEmbedding", "default_rope", "inverse_frequencies", "positions_per_radian"]


class RotaryEmbedding(nn.Module):
    """Rotates query and key heads; the cosines and sines of all positions are computed when the model is built."""

    cos_sin_cache: Tensor
    """[max_position, rotary_dim] in the model's dtype: rotary_dim / 2 cosines, then as many sines."""

    def __init__(self, head_size: int, inv_freq: Tensor, max_position: int, attention_factor: float = 1.0) -> None:
        """`inv_freq` float32 [rotary_dim / 2]: radians a position; dimensions of a head beyond rotary_dim stay."""
        super().__init__()
        self.ops = current_ops()
        self.head_size = head_size
        self.rotary_dim = 2 * len(inv_freq)
        angles = torch.outer(torch.arange(max_position, dtype=torch.float32), inv_freq)
        cache = torch.cat((angles.cos(), angles.sin()), dim=-1) * attention_factor
        self.register_buffer("cos_sin_cache", cache.to(torch.get_default_dtype()), persistent=False)

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes: positions [T], query [T, H * D], key [T, K * D]; both come back rotated, in the same shapes."""
        query_heads = query.view(len(positions), -1, self.head_size)
        key_heads = key.view(len(positions), -1, self.head_size)
        rotated_query, rotated_key = self.ops.rotary_embedding(
            positions, query_heads[..., : self.rotary_dim], key_heads[..., : self.rotary_dim], self.cos_sin_cache
        )
        if self.rotary_dim < self.head_size:
            rotated_query = torch.cat((rotated_query, query_heads[..., self.rotary_dim :]), dim=-1)
            rotated_key = torch.cat((rotated_key, key_heads[..., self.rotary_dim :]), dim=-1)
        return rotated_query.flatten(1), rotated_key.flatten(1)


def positions_per_radian(base: float, rotary_dim: int) -> Tensor:
    """Pair i of n turns by one radian in `base ** (i / n)` positions: float32 [n], from 1 up to almost `base`."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    return base**exponents


def inverse_frequencies(base: float, rotary_dim: int) -> Tensor:
    """Radians by which each pair turns from one position to the next: float32 [n], from 1 down to almost 1 / base."""
    return 1.0 / positions_per_radian(base, rotary_dim)


def default_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """See `RopeFunction`."""
    return inverse_frequencies(parameters.rope_theta, rotary_dim), 1.0
