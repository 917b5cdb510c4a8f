"""The model, its tokenizer and its files: a Qwen2-VL checkpoint that transformers and vLLM load."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, Qwen2VLConfig, Qwen2VLForConditionalGeneration

from training.tokenizer import save_tokenizer, train_tokenizer

from .batches import IMAGE_MEAN, IMAGE_STD, PATCH
from .questions import LANGUAGES, ask_any
from .scene import CELL, random_scene

__all__ = ["make_tokenizer", "new_model", "save"]

TEXT: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
ROPE_THETA, MROPE_SECTION = 10000.0, [4, 6, 6]
VISION: dict[str, Any] = {
    "depth": 4,
    "embed_dim": 128,
    "hidden_size": TEXT["hidden_size"],
    "num_heads": 4,
    "mlp_ratio": 3,
    "patch_size": PATCH,
    "spatial_merge_size": CELL // PATCH,
    "temporal_patch_size": 2,
    "in_channels": 3,
}
MIN_PIXELS, MAX_PIXELS = 5 * 6 * CELL**2, 6 * 6 * CELL**2
"""Size of pictures after the image processor: that of the training."""

END_OF_TEXT, IM_END = "<|endoftext|>", "<|im_end|>"
SPECIAL_TOKENS = (
    END_OF_TEXT,
    "<|im_start|>",
    IM_END,
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CHAT_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['content'] is string %}{{- message['content'] }}{%- else %}"
    "{%- for part in message['content'] %}"
    "{%- if part['type'] == 'text' %}{{- part['text'] }}"
    "{%- else %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- endif %}"
    "{%- endfor %}{%- endif %}{{- '<|im_end|>' + '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def make_tokenizer(scenes: int = 4000) -> Tokenizer:
    """Return a tokenizer trained on questions and answers; it has few more entries than they have words."""

    def texts() -> Iterator[str]:
        rng = random.Random("tokenizer")
        for _ in range(scenes):
            scene = random_scene(rng)
            for lang in LANGUAGES:
                asked = ask_any(scene, rng, lang)
                yield f"user\n{asked.text}\nassistant\n{asked.answer}"

    return train_tokenizer(texts(), 768, SPECIAL_TOKENS)


def new_model(tokenizer: Tokenizer) -> Qwen2VLForConditionalGeneration:
    """Return a model with random weights."""
    ids = {
        name: tokenizer.token_to_id(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start", "vision_end")
    }
    config = Qwen2VLConfig(
        text_config={
            **TEXT,
            "vocab_size": tokenizer.get_vocab_size(),
            "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA, "mrope_section": MROPE_SECTION},
            "eos_token_id": tokenizer.token_to_id(IM_END),
            "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
            "bos_token_id": None,
        },
        vision_config=VISION,
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
        tie_word_embeddings=True,
    )
    return Qwen2VLForConditionalGeneration(config)


def save(model: Qwen2VLForConditionalGeneration, tokenizer: Tokenizer, out: Path) -> None:
    """Write a whole checkpoint into `out`, with weights in bfloat16; `model` is not changed."""
    copy = Qwen2VLForConditionalGeneration(model.config).to(torch.bfloat16)
    copy.load_state_dict({name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()})
    text = model.config.text_config
    eos, pad = text.eos_token_id, text.pad_token_id
    copy.generation_config = GenerationConfig(eos_token_id=[eos, pad], pad_token_id=pad, do_sample=False)
    copy.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    save_tokenizer(tokenizer, out, TEXT["max_position_embeddings"], CHAT_TEMPLATE)
    _write(out / "config.json", _published(json.loads((out / "config.json").read_text())))
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": PATCH,
        "merge_size": CELL // PATCH,
        "temporal_patch_size": 2,
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        "image_mean": [IMAGE_MEAN] * 3,
        "image_std": [IMAGE_STD] * 3,
    }
    _write(out / "preprocessor_config.json", processor)


def _published(config: dict[str, Any]) -> dict[str, Any]:
    """Return `config` in the flat layout and with the names of published checkpoints, which vLLM 0.11.1 reads."""
    text = config.pop("text_config")
    for name in ("layer_types", "model_type", "rope_parameters", "dtype"):
        text.pop(name, None)
    return (
        config
        | text
        | {
            "rope_theta": ROPE_THETA,
            "rope_scaling": {"type": "mrope", "mrope_section": MROPE_SECTION},
            "torch_dtype": "bfloat16",
        }
    )


def _write(path: Path, settings: dict[str, Any]) -> None:
    path.write_text(json.dumps(settings, indent=2) + "\n")
