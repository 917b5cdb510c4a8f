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

__all__ = ["MRotaryEmbedding", "RotaryEmbedding", "get_rope"]


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
        return self._rotate(positions, query, key, self.cos_sin_cache)

    def _rotate(self, positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate query [T, H * D] and key [T, K * D] by the table's rows [rotary_dim] at the positions [T]."""
        query_heads = query.view(len(positions), -1, self.head_size)
        key_heads = key.view(len(positions), -1, self.head_size)
        rotated_query, rotated_key = self.ops.rotary_embedding(
            positions, query_heads[..., : self.rotary_dim], key_heads[..., : self.rotary_dim], cos_sin_cache
        )
        if self.rotary_dim < self.head_size:
            rotated_query = torch.cat((rotated_query, query_heads[..., self.rotary_dim :]), dim=-1)
            rotated_key = torch.cat((rotated_key, key_heads[..., self.rotary_dim :]), dim=-1)
        return rotated_query.flatten(1), rotated_key.flatten(1)


class MRotaryEmbedding(RotaryEmbedding):
    """Rotary embedding of tokens with three positions each, for models that read images (M-RoPE).

    Each pair of dimensions is rotated by one of the positions: in time, in height or in width. A text token's three
    positions are equal, and its rotation is the plain one. (Qwen2-VL, https://arxiv.org/abs/2409.12191)

    vLLM: vllm/model_executor/layers/rotary_embedding/mrope.py, with a kernel of its own. Here each token gets its own
    row of cosines and sines, and the plain operation rotates.
    """

    axes: Tensor
    """int64 [rotary_dim]: for each column of the table, 0 (time), 1 (height) or 2 (width)."""

    def __init__(
        self, head_size: int, inv_freq: Tensor, max_position: int, attention_factor: float, axes: Tensor
    ) -> None:
        """Compute the cosines and sines; `axes` int64 [rotary_dim / 2] has the axis of each pair."""
        super().__init__(head_size, inv_freq, max_position, attention_factor)
        self.register_buffer("axes", axes.repeat(2), persistent=False)

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return query [T, H * D] and key [T, K * D] rotated by their positions [3, T], or by [T] for text only."""
        if positions.dim() == 1:
            return super().forward(positions, query, key)
        rows = self.cos_sin_cache.gather(0, positions[self.axes].T)  # [T, rotary_dim]
        return self._rotate(torch.arange(len(rows), device=rows.device), query, key, rows)


def _mrope_axes(section: tuple[int, int, int], interleaved: bool, num_pairs: int) -> Tensor:
    """Return the axis of each pair, int64 [num_pairs]: `section` has the number of pairs of each axis.

    Raises:
        ModelLoadError: the numbers do not sum up to that of the pairs.
    """
    if sum(section) != num_pairs:
        raise ModelLoadError(
            f"config.json's `mrope_section` {list(section)} does not sum up to the {num_pairs} pairs of dimensions "
            "that are rotated."
        )
    if not interleaved:
        return torch.arange(3).repeat_interleave(torch.tensor(section))
    axes = torch.zeros(num_pairs, dtype=torch.int64)
    for axis in (1, 2):
        axes[axis : 3 * section[axis] : 3] = axis
    return axes


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
    if parameters.mrope_section is not None:
        axes = _mrope_axes(parameters.mrope_section, parameters.mrope_interleaved, len(inv_freq))
        return MRotaryEmbedding(head_size, inv_freq, max_position, attention_factor, axes)
    return RotaryEmbedding(head_size, inv_freq, max_position, attention_factor)
