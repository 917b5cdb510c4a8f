"""`llama3`: slow pairs are slowed down by the factor, fast ones are left alone, those between are blended.

A pair's wavelength is the number of positions in which it turns once, `2 * pi / inv_freq`. With L the length that the
model was trained for, and n = L / wavelength its turns over that length:

    n > high_freq_factor:   inv_freq' = inv_freq              it tells near tokens apart: keep
    n < low_freq_factor:    inv_freq' = inv_freq / factor     it never turned so far in training: squeeze
    between:                inv_freq' = (1 - s) * inv_freq / factor + s * inv_freq,  s from 0 to 1 as n grows

(Llama 3.1, https://arxiv.org/abs/2407.21783; the rule is in its released code.)

vLLM: llama3_rope.py.
"""

import math

from torch import Tensor

from tracellm.engine.config.rope_config import RopeParameters
from tracellm.engine.model_executor.layers.rotary_embedding.base import inverse_frequencies

__all__ = ["llama3_rope"]


def llama3_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """See `RopeFunction`."""
    low, high = parameters.low_freq_factor, parameters.high_freq_factor
    inv_freq = inverse_frequencies(parameters.rope_theta, rotary_dim)
    turns = parameters.original_max_position_embeddings / (2 * math.pi / inv_freq)
    if low == high:  # nothing is between
        kept = (turns >= high).float()
    else:
        kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * inv_freq / parameters.factor + kept * inv_freq, 1.0
