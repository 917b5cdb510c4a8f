"""Frequencies of the rotary embedding, one function for each `rope_type` of config.json.

Each type but `default` makes a model work beyond the length L that it was trained for, by rotating pairs more slowly.

vLLM: vllm/model_executor/layers/rotary_embedding/, a file and a class for each type. The types differ only in the
frequencies and one factor.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.rope_config import RopeParameters

__all__ = ["ROPE_TYPES", "RopeFunction"]

RopeFunction = Callable[[RopeParameters, int, int], tuple[Tensor, float]]
"""Function of (parameters, rotary_dim, max_position). Returns the angle per position of each pair, float32
[rotary_dim / 2] in radians, and the attention factor, a factor of the cosines and sines."""


def default_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """Rotate as trained."""
    return _inverse_frequencies(parameters.rope_theta, rotary_dim), 1.0


def linear_scaling_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """Squeeze positions together: position p counts as p / factor.

        inv_freq' = inv_freq / factor

    Up to L * factor, no angle is beyond the trained ones; but neighbours are closer than in training. (Position
    interpolation, https://arxiv.org/abs/2306.15595.)

    vLLM: linear_scaling_rope.py, which divides the positions instead: the same but for rounding.
    """
    return _inverse_frequencies(parameters.rope_theta, rotary_dim) / parameters.factor, 1.0


def dynamic_ntk_scaling_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """Increase the base: slow pairs are slowed down most, fast pairs hardly ("NTK-aware").

        base' = base * (factor * length / L - (factor - 1)) ** (d / (d - 2))

    d is the number of rotated dimensions. (First described by u/bloc97 and u/emozilla on Reddit; section 3 of the YaRN
    paper, https://arxiv.org/abs/2309.00071.)

    `length` is always the greatest, L * factor, as in vLLM. transformers takes the longest sequence so far and
    recomputes the base when it grows, though cached keys keep the old angles. The two agree at the full length.

    vLLM: dynamic_ntk_scaling_rope.py.
    """
    factor = parameters.factor
    stretch = factor * factor - (factor - 1)  # length / L is `factor`
    base = parameters.rope_theta * stretch ** (rotary_dim / (rotary_dim - 2))
    return _inverse_frequencies(base, rotary_dim), 1.0


def llama3_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """Slow down slow pairs by the factor, keep fast pairs, and blend those between.

    A pair's wavelength is the number of positions of one full turn, `2 * pi / inv_freq`. With n = L / wavelength, its
    turns over the trained length:

        n > high_freq_factor:   inv_freq' = inv_freq              distinguishes near tokens: keep
        n < low_freq_factor:    inv_freq' = inv_freq / factor     larger angles were never seen in training: squeeze
        between:                inv_freq' = (1 - s) * inv_freq / factor + s * inv_freq,  s from 0 to 1 as n grows

    (Llama 3.1, https://arxiv.org/abs/2407.21783; the rule is in its released code.)

    vLLM: llama3_rope.py.
    """
    low, high = parameters.low_freq_factor, parameters.high_freq_factor
    inv_freq = _inverse_frequencies(parameters.rope_theta, rotary_dim)
    rotations = parameters.original_max_position_embeddings / (2 * math.pi / inv_freq)
    if low == high:  # nothing is between
        unscaled = (rotations >= high).float()
    else:
        unscaled = ((rotations - low) / (high - low)).clamp(0, 1)
    return (1 - unscaled) * inv_freq / parameters.factor + unscaled * inv_freq, 1.0


def yarn_scaling_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """Blend as in `llama3_rope`, but by the pair's number, and sharpen attention a little.

    A pair that turns at least `beta_fast` times over the trained length L is kept; one that turns at most `beta_slow`
    times is slowed down by the factor; between these two pair numbers the blend is linear:

        inv_freq' = (1 - unscaled) * inv_freq / factor + unscaled * inv_freq,  unscaled from 1 to 0

    Pair i (of d rotated dimensions) turns r times over L where i = d * ln(L / (2 * pi * r)) / (2 * ln(base)). Cosines
    and sines are multiplied by `0.1 * ln(factor) + 1`, since attention over more tokens spreads thinner. (YaRN,
    https://arxiv.org/abs/2309.00071.)

    vLLM: yarn_scaling_rope.py. config.json's `attention_factor`, `mscale`, `mscale_all_dim` and `truncate` are obeyed,
    as in transformers; vLLM 0.11.1 ignores them.
    """
    plain = _positions_per_radian(parameters.rope_theta, rotary_dim)
    first, last = _yarn_blended_pairs(parameters, rotary_dim)
    unscaled = 1 - ((torch.arange(rotary_dim // 2, dtype=torch.float32) - first) / (last - first)).clamp(0, 1)
    inv_freq = (1.0 / (parameters.factor * plain)) * (1 - unscaled) + (1.0 / plain) * unscaled
    return inv_freq, _yarn_attention_factor(parameters)


def _yarn_blended_pairs(parameters: RopeParameters, rotary_dim: int) -> tuple[float, float]:
    """Return the last pair that is kept, and the first that is slowed down by the whole factor."""

    def pair_with_rotations(rotations: float) -> float:
        positions_per_radian = parameters.original_max_position_embeddings / (2 * math.pi * rotations)
        return rotary_dim * math.log(positions_per_radian) / (2 * math.log(parameters.rope_theta))

    first, last = pair_with_rotations(parameters.beta_fast), pair_with_rotations(parameters.beta_slow)
    if parameters.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary_dim - 1)
    return first, last if last != first else first + 0.001  # no division by zero


def _yarn_attention_factor(parameters: RopeParameters) -> float:
    if parameters.attention_factor is not None:
        return parameters.attention_factor
    stretch = math.log(max(parameters.factor, 1.0))
    if parameters.mscale and parameters.mscale_all_dim:  # DeepSeek's two scales
        return (0.1 * parameters.mscale * stretch + 1.0) / (0.1 * parameters.mscale_all_dim * stretch + 1.0)
    return 0.1 * stretch + 1.0


def phi3_long_rope_scaled_rope(parameters: RopeParameters, rotary_dim: int, max_position: int) -> tuple[Tensor, float]:
    """Divide each pair's frequency by its own factor, found by search: one set for short texts, one for long texts.

        inv_freq'[i] = inv_freq[i] / short_factor[i]    or    / long_factor[i]

    Cosines and sines are multiplied by `sqrt(1 + ln(factor) / ln(L))`, where factor is the stretch,
    `max_position_embeddings / L`. (LongRoPE, https://arxiv.org/abs/2402.13753; Phi-3, `su` in its first checkpoints.)

    The long factors are used if `max_position` is beyond L, for texts of every length, as in vLLM: no cached key ever
    has the wrong angles. transformers decides at each forward pass, by the greatest position in it. The two agree on
    texts beyond L, and everywhere if `max_position` is at most L.

    vLLM: phi3_long_rope_scaled_rope.py. config.json's `attention_factor` and `factor` are obeyed, as in transformers;
    vLLM 0.11.1 ignores them.

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
    plain = _positions_per_radian(parameters.rope_theta, rotary_dim)
    inv_freq = 1.0 / (torch.tensor(factors, dtype=torch.float32) * plain)
    if parameters.attention_factor is not None:
        return inv_freq, parameters.attention_factor
    return inv_freq, math.sqrt(1 + math.log(max(parameters.factor, 1.0)) / math.log(trained))


ROPE_TYPES: dict[str, RopeFunction] = {
    "default": default_rope,
    "linear": linear_scaling_rope,
    "dynamic": dynamic_ntk_scaling_rope,
    "llama3": llama3_rope,
    "yarn": yarn_scaling_rope,
    "longrope": phi3_long_rope_scaled_rope,
}


def _positions_per_radian(base: float, rotary_dim: int) -> Tensor:
    """Return the positions in which pair i of n turns by one radian, `base ** (i / n)`: float32 [n]."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    return base**exponents


def _inverse_frequencies(base: float, rotary_dim: int) -> Tensor:
    """Return the radians by which each pair turns per position: float32 [n]."""
    return 1.0 / _positions_per_radian(base, rotary_dim)
