"""Rotary position embedding: turns pairs of dimensions of a query or key by an angle that grows with its position.

The score of a query with a key then depends on how far apart the two are (RoFormer, https://arxiv.org/abs/2104.09864).
Read `base.py` first. The other files are ways of making a model work beyond the length it was trained for: each turns
the pairs more slowly by a rule of its own. One file for each type that config.json can name (`rope_type`).

vLLM: vllm/model_executor/layers/rotary_embedding/, with the same file names; what is a class for each type there is a
function here, since the types differ in nothing but the frequencies and one factor.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.rope_config import RopeParameters, get_rope_parameters
from tracellm.engine.model_executor.layers.rotary_embedding.base import RotaryEmbedding, default_rope
from tracellm.engine.model_executor.layers.rotary_embedding.dynamic_ntk_scaling_rope import dynamic_ntk_scaling_rope
from tracellm.engine.model_executor.layers.rotary_embedding.linear_scaling_rope import linear_scaling_rope
from tracellm.engine.model_executor.layers.rotary_embedding.llama3_rope import llama3_rope
from tracellm.engine.model_executor.layers.rotary_embedding.phi3_long_rope_scaled_rope import phi3_long_rope_scaled_rope
from tracellm.engine.model_executor.layers.rotary_embedding.yarn_scaling_rope import yarn_scaling_rope

__all__ = ["ROPE_TYPES", "RopeFunction", "RotaryEmbedding", "get_rope"]

RopeFunction = Callable[[RopeParameters, int, int], tuple[Tensor, float]]
"""(parameters, rotary_dim, max_position) to the angle per position of each pair, float32 [rotary_dim / 2] in radians,
and the attention factor, by which cosines and sines are multiplied."""

ROPE_TYPES: dict[str, RopeFunction] = {
    "default": default_rope,
    "linear": linear_scaling_rope,
    "dynamic": dynamic_ntk_scaling_rope,
    "llama3": llama3_rope,
    "yarn": yarn_scaling_rope,
    "longrope": phi3_long_rope_scaled_rope,
}


def get_rope(hf_config: Any, head_size: int, max_position: int, layer_type: str = "full_attention") -> RotaryEmbedding:
    """The rotary embedding that a config.json asks for, for positions below `max_position`.

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
