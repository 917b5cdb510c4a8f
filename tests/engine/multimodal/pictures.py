"""Random pictures, and prompts with them, for tests of multimodal models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.multimodal_checkpoints import IMAGE_TOKEN

__all__ = ["make_picture", "make_prompt", "write_image_processor"]


def write_image_processor(folder: Path) -> None:
    """Write the preprocessor_config.json of a small Qwen2-VL checkpoint: patches of its size, at most 64 tokens."""
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": vision["patch_size"],
        "merge_size": vision["spatial_merge_size"],
        "temporal_patch_size": vision["temporal_patch_size"],
        "min_pixels": 64,
        "max_pixels": 4096,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


def make_picture(seed: int, width: int = 46, height: int = 30) -> Image.Image:
    """Make a picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def make_prompt(*parts: int | Image.Image) -> dict[str, Any]:
    """Make a prompt of token ids and pictures, each picture between its start and end tokens."""
    token_ids: list[int] = []
    pictures: list[Image.Image] = []
    for part in parts:
        if isinstance(part, int):
            token_ids.append(part)
        else:
            token_ids += [301, IMAGE_TOKEN, 302]
            pictures.append(part)
    return {"prompt_token_ids": token_ids} | ({"multi_modal_data": {"image": pictures}} if pictures else {})
