"""Small checkpoints of models that read images or sounds: random weights made by transformers, byte-level tokenizer."""

from pathlib import Path
from typing import Any

from tests.checkpoints import VOCAB_SIZE, write_tokenizer

__all__ = ["AUDIO_TOKEN", "IMAGE_TOKEN", "MULTIMODAL_FAMILIES", "make_multimodal_checkpoint", "reference_model"]

IMAGE_TOKEN = 300
"""Placeholder token of images in all families; 301 to 303 are other special tokens."""
AUDIO_TOKEN = 304
"""Placeholder token of sounds."""

_TEXT = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "bos_token_id": 256,
    "eos_token_id": 256,
    "pad_token_id": 256,
}
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
_VISION = {"num_heads": 2, "patch_size": 4, "initializer_range": 0.15}
_IMAGE_TOKENS = {
    "image_token_id": IMAGE_TOKEN,
    "vision_start_token_id": 301,
    "vision_end_token_id": 302,
    "video_token_id": 303,
}

MULTIMODAL_FAMILIES: dict[str, dict[str, Any]] = {
    # keyed by model_type
    "llava": {
        "text_config": {**_TEXT, "model_type": "llama"},
        "vision_config": {
            **{"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48},
            **{"num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 16, "patch_size": 4},
            "initializer_factor": 5.0,
        },
        "image_token_index": IMAGE_TOKEN,
        "image_seq_length": 16,
        "initializer_range": 0.15,
    },
    "qwen2_audio": {
        "text_config": {**_TEXT, "model_type": "qwen2"},
        "audio_config": {
            **{"model_type": "qwen2_audio_encoder", "d_model": 32, "encoder_layers": 2},
            **{"encoder_attention_heads": 2, "encoder_ffn_dim": 48, "num_mel_bins": 16, "max_source_positions": 40},
            "initializer_range": 0.15,
        },
        "audio_token_index": AUDIO_TOKEN,
        "initializer_range": 0.15,
    },
    "qwen2_vl": {
        "text_config": {**_TEXT, "rope_parameters": _MROPE},
        "vision_config": {**_VISION, "depth": 2, "embed_dim": 32, "hidden_size": 64},
        **_IMAGE_TOKENS,
    },
    "qwen2_5_vl": {
        "text_config": {**_TEXT, "rope_parameters": _MROPE},
        "vision_config": {
            **_VISION,
            **{"depth": 3, "hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 48},
            **{"window_size": 16, "fullatt_block_indexes": [1]},  # windows of 2 x 2 squares of 2 x 2 patches
        },
        **_IMAGE_TOKENS,
    },
    "qwen3_vl": {
        "text_config": {**_TEXT, "head_dim": 16, "rope_parameters": {**_MROPE, "mrope_interleaved": True}},
        "vision_config": {
            **_VISION,
            **{"depth": 4, "hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 48},
            **{"deepstack_visual_indexes": [2, 0], "num_position_embeddings": 36},
        },
        **_IMAGE_TOKENS,
    },
}
"""One small model of each family that reads images or sounds."""


def make_multimodal_checkpoint(
    folder: Path, model_type: str, *, seed: int = 0, dtype: str = "float32", **config: Any
) -> Path:
    """Write a checkpoint of this `model_type` with random weights and a tokenizer, and return its folder.

    `config` overrides the small configuration; dictionaries (`text_config`) are merged. Biases and norms are random
    too, so a model that omits one fails.
    """
    import torch
    import transformers

    settings = dict(MULTIMODAL_FAMILIES[model_type])
    for name, value in config.items():
        settings[name] = settings[name] | value if isinstance(value, dict) else value
    hf_config = transformers.AutoConfig.for_model(model_type, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForMultimodalLM.from_config(hf_config, dtype=torch.float32).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def reference_model(folder: Path) -> Any:
    """The checkpoint run by transformers in float32: the reference for our models."""
    import torch
    from transformers import AutoModelForMultimodalLM

    return AutoModelForMultimodalLM.from_pretrained(folder, dtype=torch.float32).eval()
