"""Models compared with transformers: each family, and variants of its config.json.

A family is an entry of tests/checkpoints.py; a variant changes some of its settings.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.checkpoints import FAMILIES

__all__ = ["VARIANTS", "Variant"]

SHORT = (1, 2, 5, 17, 45, 100)
"""Lengths of prompts, within and beyond the windows and the trained lengths of the small models."""
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(6)],
    "long_factor": [1.5 + 0.7 * i for i in range(6)],
}


@dataclass(frozen=True)
class Variant:
    """Checkpoint and its prompts."""

    model_type: str
    config: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = SHORT
    max_model_len: int | None = None


VARIANTS: dict[str, Variant] = {
    **{family: Variant(family) for family in FAMILIES},
    # Gemma: without the caps, with biases, with an untied output layer; with a key head for each query head
    "gemma2-no-caps-biases": Variant(
        "gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True}
    ),
    "gemma2-untied-mha": Variant("gemma2", {"tie_word_embeddings": False, "num_key_value_heads": 4}),
    "gemma3-untied-capped": Variant("gemma3_text", {"tie_word_embeddings": False, "final_logit_softcapping": 5.0}),
    "gemma3-all-windows": Variant("gemma3_text", {"layer_types": ["sliding_attention"] * 4}),
    # GPT-2
    "gpt2-untied-narrow": Variant("gpt2", {"tie_word_embeddings": False, "n_inner": 96}),
    # Llama: 1 and 2 have plain rotary positions; a head may be wider than hidden / heads; biases; every rotary type.
    "llama-2": Variant("llama", {"rope_parameters": None, "head_dim": None, "num_key_value_heads": 4}),
    "llama-biases-tied": Variant("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama-linear": Variant(
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}, "max_position_embeddings": 64},
        lengths=(*SHORT, 255),
    ),
    # transformers' angles depend on the text's length; at the maximum length, 255 and one more token, they equal vLLM's
    # and ours.
    "llama-dynamic": Variant(
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}, "max_position_embeddings": 64},
        lengths=(255,),
    ),
    "llama-yarn": Variant("llama", {"rope_parameters": YARN}, lengths=(*SHORT, 255)),
    "mistral-no-window": Variant("mistral", {"sliding_window": None, "head_dim": 32}),
    "mistral-window-of-one": Variant("mistral", {"sliding_window": 1}),
    # OPT
    "opt-norm-after-projected": Variant("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "opt-no-final-norm-no-bias": Variant("opt", {"_remove_final_layer_norm": True, "enable_bias": False}),
    "opt-plain-norm": Variant("opt", {"layer_norm_elementwise_affine": False}),
    # Phi-3: short factors up to the trained length, long ones for an engine beyond it (see longrope).
    "phi3-longrope-short": Variant(
        "phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64}, lengths=(1, 2, 17, 63)
    ),
    "phi3-longrope-long": Variant(
        "phi3",
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64, "sliding_window": None},
        lengths=(65, 100, 255),
        max_model_len=256,
    ),
    "phi3-whole-heads-tied": Variant("phi3", {"partial_rotary_factor": 1.0, "tie_word_embeddings": True}),
    # Qwen2 and Qwen3
    "qwen2-untied-mha": Variant("qwen2", {"tie_word_embeddings": False, "num_key_value_heads": 4}),
    "qwen2-mqa-theta": Variant(
        "qwen2", {"num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    ),
    "qwen2-window-in-upper-layers": Variant(
        "qwen2", {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1}
    ),
    "qwen3-biases-tied": Variant("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
    "qwen3-window-in-one-layer": Variant(
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 7,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    ),
}
"""Variants by their name in the test report."""
