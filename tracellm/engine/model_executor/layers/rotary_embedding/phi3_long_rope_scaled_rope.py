"""`longrope` (Phi-3; `su` in its first checkpoints): a factor for each pair, found by search, one for short texts and
another for long ones.

    inv_freq'[i] = inv_freq[i] / short_factor[i]    or    / long_factor[i]

Cosines and sines are multiplied by `sqrt(1 + ln(factor) / ln(L))`, with L the trained length and factor the stretch,
`max_position_embeddings / L`. (LongRoPE, https://arxiv.org/abs/2402.13753.)

Which factors? vLLM decides at start-up: the long ones if `max_model_len` is beyond L, for texts of every length, so
that no key in the KV cache ever has the wrong angles; therefore `max_model_len` is L unless one asks for more. We do as
vLLM. transformers decides at each forward pass, by the greatest position in it: the two agree on texts beyond L, and
everywhere if `max_model_len` is at most L.

vLLM: phi3_long_rope_scaled_rope.py. transformers reads from config.json also `attention_factor` and `factor`; vLLM
0.11.1 passes over these, we heed them.
"""

import math

import torch
from torch import Tensor

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.rope_config import RopeParameters
from tracellm.engine.model_executor.layers.rotary_embedding.base import positions_per_radian

__all__ = ["phi3_long_rope_scaled_rope"]


def phi3_long_rope_scaled_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """See `RopeFunction`. `max_position` decides between the short and the long factors.

    Raises:
        ModelLoadError: there is not one factor for each rotated pair.
    """
    trained = parameters.original_max_position_embeddings
    name = "long_factor" if max_position > trained else "short_factor"
    factors = getattr(parameters, name)
    if len(factors) != rotary_dim // 2:
        raise ModelLoadError(
            f"config.json's rope_parameters: `{name}` has {len(factors)} numbers, "
            f"but {rotary_dim // 2} pairs of dimensions are rotated."
        )
    plain = positions_per_radian(parameters.rope_theta, rotary_dim)
    inv_freq = 1.0 / (torch.tensor(factors, dtype=torch.float32) * plain)
    if parameters.attention_factor is not None:
        return inv_freq, parameters.attention_factor
    return inv_freq, math.sqrt(1 + math.log(max(parameters.factor, 1.0)) / math.log(trained))
