"""What config.json says of the rotary embedding, checked, in one form whichever transformers wrote the file.

transformers 5 writes one dictionary, `rope_parameters`, or one for each kind of layer where these differ (Gemma 3).
transformers 4 wrote `rope_theta`, `rope_scaling` and `partial_rotary_factor` side by side. Read twice at start-up: for
the greatest length (hf_config.py) and for the angles (layers/rope_scaling.py, which explains the types).

vLLM: vllm/transformers_utils/config.py::patch_rope_scaling. Left out: `mrope`, `ntk`, `deepseek_yarn`, `mllama4`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from tracellm.engine.config.errors import ModelLoadError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["RopeParameters", "get_rope_parameters"]

_NEEDED = {
    # rope type: what its dictionary must hold
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}
_OLD_NAMES = {"su": "longrope"}  # Phi-3's first checkpoints
_UNSUPPORTED = ("alpha", "attn_factor", "extrapolation_factor", "long_mscale", "mrope_section", "short_mscale")

Positive = Annotated[float, Meta(gt=0)]
Length = Annotated[int, Meta(ge=1)]


class RopeParameters(msgspec.Struct, frozen=True, kw_only=True):
    """A rotary embedding's type and its numbers, named as in transformers; a type reads only what it needs."""

    rope_type: str = "default"
    rope_theta: Positive = 10000.0
    """The base of the angles: pair i of n turns by `rope_theta ** (-i / n)` radians a position."""
    partial_rotary_factor: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """The share of each head that is rotated: its first dimensions."""
    original_max_position_embeddings: Length
    """The length that the model was trained for, before it was stretched."""
    factor: Positive = 1.0
    """How many times that length it is stretched to."""
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: Positive | None = None
    """Multiplies cosines and sines, and so, squared, the attention scores; None: what the type's paper recommends."""
    short_factor: tuple[Positive, ...] = ()
    long_factor: tuple[Positive, ...] = ()


def get_rope_parameters(hf_config: PretrainedConfig, layer_type: str = "full_attention") -> RopeParameters:
    """The rotary embedding that a config.json asks for, in its layers of this type.

    Raises:
        ModelLoadError: an unknown type, or numbers that are missing, impossible or not supported.
    """
    written = _written(hf_config, layer_type)
    rope_type = written.get("rope_type") or written.get("type") or "default"
    rope_type = written["rope_type"] = _OLD_NAMES.get(rope_type, rope_type)
    if rope_type not in _NEEDED:
        raise ModelLoadError(
            f"config.json asks for the rotary embedding `{rope_type}` (rope_parameters), which is not supported. "
            f"Supported: {', '.join(_NEEDED)}."
        )
    if missing := [name for name in _NEEDED[rope_type] if name not in written]:
        raise ModelLoadError(f"config.json's rope_parameters of the type `{rope_type}` lack {', '.join(missing)}.")
    if unsupported := [name for name in _UNSUPPORTED if name in written]:
        raise ModelLoadError(f"config.json's rope_parameters set {', '.join(unsupported)}, which is not supported.")
    trained, longest = written.get("original_max_position_embeddings"), hf_config.max_position_embeddings
    if rope_type in ("default", "linear", "dynamic"):  # these stretch `max_position_embeddings`
        trained = longest
    else:  # Phi-3 writes it next to rope_parameters; that one counts
        trained = getattr(hf_config, "original_max_position_embeddings", None) or trained or longest
    written["original_max_position_embeddings"] = trained
    try:
        if rope_type == "longrope":
            written.setdefault("factor", max(longest / trained, 1.0))
        return msgspec.convert(written, RopeParameters)
    except (msgspec.ValidationError, TypeError, ZeroDivisionError) as error:
        raise ModelLoadError(f"config.json's rope_parameters of the type `{rope_type}` are wrong: {error}.") from None


def _written(hf_config: PretrainedConfig, layer_type: str) -> dict[str, Any]:
    """A copy of the dictionary that is about layers of this type, without what is null."""
    written = getattr(hf_config, "rope_parameters", None)
    if written is not None:
        written = written.get(layer_type, written)
    elif layer_type == "sliding_attention" and hasattr(hf_config, "rope_local_base_freq"):  # Gemma 3, transformers 4
        written = {"rope_theta": hf_config.rope_local_base_freq}
    else:
        written = {
            "rope_theta": getattr(hf_config, "rope_theta", None),
            "partial_rotary_factor": getattr(hf_config, "partial_rotary_factor", None),
            **(getattr(hf_config, "rope_scaling", None) or {}),
        }
    return {name: value for name, value in written.items() if value is not None}
