"""`linear`: positions are squeezed together. A position p counts as p / factor.

    inv_freq' = inv_freq / factor

So a model trained for L positions sees no angle beyond those it knows up to L * factor; but neighbours come closer than
it has ever seen them. (Position interpolation, https://arxiv.org/abs/2306.15595.)

vLLM: linear_scaling_rope.py, which divides the positions instead: the same but for rounding.
"""

from torch import Tensor

from tracellm.engine.config.rope_config import RopeParameters
from tracellm.engine.model_executor.layers.rotary_embedding.base import inverse_frequencies

__all__ = ["linear_scaling_rope"]


def linear_scaling_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """See `RopeFunction`."""
    return inverse_frequencies(parameters.rope_theta, rotary_dim) / parameters.factor, 1.0
