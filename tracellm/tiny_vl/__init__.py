"""The bundled model that reads pictures: a Qwen2-VL checkpoint, trained by `training/pictures/`, with its card."""

from pathlib import Path

__all__ = ["MODEL_DIR"]

MODEL_DIR = Path(__file__).parent
"""The folder to load: `AutoModelForImageTextToText.from_pretrained(MODEL_DIR)`, or `LLM("tiny-vl")`."""
