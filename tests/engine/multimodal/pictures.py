"""Random pictures, and prompts with them, for tests of multimodal models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.multimodal_checkpoints import AUDIO_TOKEN, IMAGE_TOKEN

__all__ = ["CHAT_TEMPLATE", "make_picture", "make_prompt", "make_sound", "write_image_tokens", "write_processor"]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template that goes through the parts of a content, as Qwen2-VL's does."""


def write_processor(folder: Path) -> None:
    """Write the preprocessor_config.json of a small checkpoint: at most 64 tokens an image, or a second of sound."""
    config = json.loads((folder / "config.json").read_text())
    normal = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    if config["model_type"] == "qwen2_audio":
        audio = config["audio_config"]
        settings = {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": audio["num_mel_bins"],
            "chunk_length": 1,
        }
    elif config["model_type"] == "llava":
        size = {"height": config["vision_config"]["image_size"], "width": config["vision_config"]["image_size"]}
        settings = {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": size["height"]},
            "crop_size": size,
            **normal,
        }
    else:
        vision = config["vision_config"]
        side = vision["patch_size"] * vision["spatial_merge_size"]
        settings = {
            "image_processor_type": "Qwen2VLImageProcessor",
            "patch_size": vision["patch_size"],
            "merge_size": vision["spatial_merge_size"],
            "temporal_patch_size": vision["temporal_patch_size"],
            "min_pixels": side**2,
            "max_pixels": 64 * side**2,
            **normal,
        }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


def write_image_tokens(folder: Path) -> None:
    """Add the special tokens of images to a checkpoint's tokenizer, and a chat template that uses them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    fillers = [f"<|unused{number}|>" for number in range(len(tokenizer), IMAGE_TOKEN)]
    items = ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>", "<|AUDIO|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": [*fillers, *items]})
    assert tokenizer.convert_tokens_to_ids("<|image_pad|>") == IMAGE_TOKEN
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)


def make_picture(seed: int, width: int = 46, height: int = 30) -> Image.Image:
    """Make a picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def make_sound(seed: int, seconds: float) -> np.ndarray:
    """Make a sound of a falling tone in noise, float32 at 16 kHz."""
    rng, time = np.random.default_rng(seed), np.arange(int(16_000 * seconds)) / 16_000
    tone = np.sin(2 * np.pi * (900 - 500 * time) * time * (1 + seed))
    return (0.5 * tone + 0.1 * rng.standard_normal(len(time))).astype(np.float32)


def make_prompt(*parts: int | Image.Image | np.ndarray) -> dict[str, Any]:
    """Make a prompt of token ids, pictures and sounds, each picture between its start and end tokens."""
    token_ids: list[int] = []
    items: dict[str, list[Any]] = {}
    for part in parts:
        if isinstance(part, int):
            token_ids.append(part)
        elif isinstance(part, np.ndarray):
            token_ids.append(AUDIO_TOKEN)
            items.setdefault("audio", []).append(part)
        else:
            token_ids += [301, IMAGE_TOKEN, 302]
            items.setdefault("image", []).append(part)
    return {"prompt_token_ids": token_ids} | ({"multi_modal_data": items} if items else {})
