"""`yarn`: as `llama3`, but the blend goes by the pair's number, and attention is made a little sharper.

A pair that turns at least `beta_fast` times over the trained length L is kept; one that turns at most `beta_slow` times
is slowed down by the factor; between these two pair numbers the blend is linear:

    inv_freq' = (1 - kept) * inv_freq / factor + kept * inv_freq,  kept from 1 to 0

Pair i (of rotated dimensions d) turns r times over L where i = d * ln(L / (2 * pi * r)) / (2 * ln(base)). Cosines and
sines are multiplied by `0.1 * ln(factor) + 1`, since attention over more tokens spreads thinner.
(YaRN, https://arxiv.org/abs/2309.00071.)

vLLM: yarn_scaling_rope.py. transformers reads from config.json also `attention_factor`, `mscale`, `mscale_all_dim` and
`truncate`; vLLM 0.11.1 passes over these, we heed them.
"""

import math

import torch
from torch import Tensor

from tracellm.engine.config.rope_config import RopeParameters
from tracellm.engine.model_executor.layers.rotary_embedding.base import positions_per_radian

__all__ = ["yarn_scaling_rope"]


def yarn_scaling_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """See `RopeFunction`."""
    plain = positions_per_radian(parameters.rope_theta, rotary_dim)
    first, last = _blended_pairs(parameters, rotary_dim)
    kept = 1 - ((torch.arange(rotary_dim // 2, dtype=torch.float32) - first) / (last - first)).clamp(0, 1)
    inv_freq = (1.0 / (parameters.factor * plain)) * (1 - kept) + (1.0 / plain) * kept
    return inv_freq, _attention_factor(parameters)


def _blended_pairs(parameters: RopeParameters, rotary_dim: int) -> tuple[float, float]:
    """The last pair that is kept, and the first that is slowed down by the whole factor."""

    def pair_that_turns(times: float) -> float:
        positions_a_radian = parameters.original_max_position_embeddings / (2 * math.pi * times)
        return rotary_dim * math.log(positions_a_radian) / (2 * math.log(parameters.rope_theta))

    first, last = pair_that_turns(parameters.beta_fast), pair_that_turns(parameters.beta_slow)
    if parameters.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary_dim - 1)
    return first, last if last != first else first + 0.001  # no division by zero


def _attention_factor(parameters: RopeParameters) -> float:
    if parameters.attention_factor is not None:
        return parameters.attention_factor
    stretch = math.log(max(parameters.factor, 1.0))
    if parameters.mscale and parameters.mscale_all_dim:  # DeepSeek's two scales
        return (0.1 * parameters.mscale * stretch + 1.0) / (0.1 * parameters.mscale_all_dim * stretch + 1.0)
    return 0.1 * stretch + 1.0
