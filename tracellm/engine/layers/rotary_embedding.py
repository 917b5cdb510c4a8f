"""Rotary position embedding: turns pairs of dimensions of a query or key by an angle that grows with its position.

vLLM: vllm/model_executor/layers/rotary_embedding/ (`get_rope`, `RotaryEmbedding`). Left out: the scaled variants.
"""

from typing import Any

import torch
from torch import Tensor, nn

from tracellm.engine.errors import ModelLoadError
from tracellm.engine.ops import ops

__all__ = ["RotaryEmbedding", "get_rope"]


class RotaryEmbedding(nn.Module):
    """Rotates query and key heads; the cosines and sines of all positions are computed when the model is built."""

    cos_sin_cache: Tensor
    """[max_position, head_size] in the model's dtype: head_size / 2 cosines, then as many sines."""

    def __init__(self, head_size: int, max_position: int, base: float) -> None:
        """Positions are below `max_position`; pair i of n turns by `base ** (-i / n)` radians a position."""
        super().__init__()
        self.head_size = head_size
        exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
        angles = torch.outer(torch.arange(max_position, dtype=torch.float32), 1.0 / base**exponents)
        cache = torch.cat((angles.cos(), angles.sin()), dim=-1).to(torch.get_default_dtype())
        self.register_buffer("cos_sin_cache", cache, persistent=False)

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes: positions [T], query [T, H * D], key [T, K * D]; both come back rotated, in the same shapes."""
        rotated_query, rotated_key = ops.rotary_embedding(
            positions,
            query.view(len(positions), -1, self.head_size),
            key.view(len(positions), -1, self.head_size),
            self.cos_sin_cache,
        )
        return rotated_query.flatten(1), rotated_key.flatten(1)


def get_rope(hf_config: Any, head_size: int, max_position: int) -> RotaryEmbedding:
    """The rotary embedding that a config.json asks for.

    Read as transformers 5 writes it (`rope_parameters`) and as transformers 4 did (`rope_theta`, `rope_scaling`).

    Raises:
        ModelLoadError: the kind of rotary embedding is not the plain one.
    """
    parameters = getattr(hf_config, "rope_parameters", None) or {
        "rope_theta": getattr(hf_config, "rope_theta", 10000.0),
        **(getattr(hf_config, "rope_scaling", None) or {}),
    }
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if kind != "default":
        raise ModelLoadError(
            f"config.json asks for the rotary embedding `{kind}` (rope_parameters); only `default` is supported."
        )
    return RotaryEmbedding(head_size, max_position, float(parameters["rope_theta"]))
