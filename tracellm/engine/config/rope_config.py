"""Rotary embedding parameters of a config.json, validated, in one form for all versions of transformers.

transformers 5 writes a dictionary `rope_parameters`, or one per layer type where these differ (Gemma 3). transformers 4
wrote `rope_theta`, `rope_scaling` and `partial_rotary_factor`. Read at start-up for the model's maximum length
(hf_config.py) and for the rotation angles (model_executor/layers/rope_scaling.py, which explains the types).

vLLM: vllm/transformers_utils/config.py::patch_rope_scaling. Left out: `ntk`, `deepseek_yarn`, `mllama4`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from tracellm.engine.config.errors import ModelLoadError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["RopeParameters", "get_rope_parameters"]

_REQUIRED = {
    # required parameters by type
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}
_OLD_NAMES = {"su": "longrope", "mrope": "default"}  # in the first checkpoints of Phi-3, and of Qwen2-VL
_UNSUPPORTED = ("alpha", "attn_factor", "extrapolation_factor", "long_mscale", "short_mscale")

Positive = Annotated[float, Meta(gt=0)]
Length = Annotated[int, Meta(ge=1)]


class RopeParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Type and parameters of a rotary embedding, named as in transformers; each type uses some of them."""

    rope_type: str = "default"
    rope_theta: Positive = 10000.0
    """Base of the angles: pair i of n turns by `rope_theta ** (-i / n)` radians per position."""
    partial_rotary_factor: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of each head's dimensions that is rotated, from the first on."""
    original_max_position_embeddings: Length
    """Length that the model was trained for, before scaling."""
    factor: Positive = 1.0
    """Ratio of the scaled length to that length."""
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: Positive | None = None
    """Factor of cosines and sines, and squared of the attention scores; None is the paper's recommendation."""
    short_factor: tuple[Positive, ...] = ()
    long_factor: tuple[Positive, ...] = ()
    mrope_section: tuple[int, int, int] | None = None
    """Pairs that are rotated by a token's position in time, in height and in width; None: it has one position."""
    mrope_interleaved: bool = False
    """Take these pairs in turns, not one section after the other."""


def get_rope_parameters(hf_config: PretrainedConfig, layer_type: str = "full_attention") -> RopeParameters:
    """Return the parameters of the rotary embedding in layers of this type.

    Raises:
        ModelLoadError: an unknown type, or parameters that are missing, invalid or unsupported.
    """
    parameters = _read_parameters(hf_config, layer_type)
    rope_type = parameters.get("rope_type") or parameters.get("type") or "default"
    rope_type = parameters["rope_type"] = _OLD_NAMES.get(rope_type, rope_type)
    if rope_type not in _REQUIRED:
        raise ModelLoadError(
            f"config.json asks for the rotary embedding `{rope_type}` (rope_parameters), which is not supported. "
            f"Supported: {', '.join(_REQUIRED)}."
        )
    if missing := [name for name in _REQUIRED[rope_type] if name not in parameters]:
        raise ModelLoadError(f"config.json's rope_parameters of the type `{rope_type}` lack {', '.join(missing)}.")
    if unsupported := [name for name in _UNSUPPORTED if name in parameters]:
        raise ModelLoadError(f"config.json's rope_parameters set {', '.join(unsupported)}, which is not supported.")
    trained, longest = parameters.get("original_max_position_embeddings"), hf_config.max_position_embeddings
    if rope_type in ("default", "linear", "dynamic"):  # these scale `max_position_embeddings`
        trained = longest
    else:  # Phi-3 writes it beside rope_parameters, and that value counts
        trained = getattr(hf_config, "original_max_position_embeddings", None) or trained or longest
    parameters["original_max_position_embeddings"] = trained
    try:
        if rope_type == "longrope":
            parameters.setdefault("factor", max(longest / trained, 1.0))
        return msgspec.convert(parameters, RopeParameters)
    except (msgspec.ValidationError, TypeError, ZeroDivisionError) as error:
        raise ModelLoadError(f"config.json's rope_parameters of the type `{rope_type}` are wrong: {error}.") from None


def _read_parameters(hf_config: PretrainedConfig, layer_type: str) -> dict[str, Any]:
    """Return a copy of the parameters for layers of this type, without null values."""
    parameters = getattr(hf_config, "rope_parameters", None)
    if parameters is not None:
        parameters = parameters.get(layer_type, parameters)
    elif layer_type == "sliding_attention" and hasattr(hf_config, "rope_local_base_freq"):  # Gemma 3, transformers 4
        parameters = {"rope_theta": hf_config.rope_local_base_freq}
    else:
        parameters = {
            "rope_theta": getattr(hf_config, "rope_theta", None),
            "partial_rotary_factor": getattr(hf_config, "partial_rotary_factor", None),
            **(getattr(hf_config, "rope_scaling", None) or {}),
        }
    return {name: value for name, value in parameters.items() if value is not None}
