"""`dynamic`: the base grows, so that slow pairs are slowed down much and fast ones hardly ("NTK-aware").

    base' = base * (factor * length / L - (factor - 1)) ** (d / (d - 2))

with L the length that the model was trained for and d the rotated dimensions: the slowest pair is slowed by the whole
stretch, the fastest not at all. (First described by u/bloc97 and u/emozilla on Reddit; in the YaRN paper,
https://arxiv.org/abs/2309.00071, section 3.)

Which `length`? vLLM takes the greatest there is, L * factor, once and for all, and so do we. transformers takes that of
the longest sequence so far, and computes the base anew when it grows: short texts are as before the stretch, but keys
that are in the KV cache already keep the angles of the old base. The two agree at the full length.

vLLM: dynamic_ntk_scaling_rope.py.
"""

from torch import Tensor

from tracellm.engine.config.rope_config import RopeParameters
from tracellm.engine.model_executor.layers.rotary_embedding.base import inverse_frequencies

__all__ = ["dynamic_ntk_scaling_rope"]


def dynamic_ntk_scaling_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """See `RopeFunction`."""
    factor = parameters.factor
    stretch = factor * factor - (factor - 1)  # length / L is `factor`
    base = parameters.rope_theta * stretch ** (rotary_dim / (rotary_dim - 2))
    return inverse_frequencies(base, rotary_dim), 1.0
