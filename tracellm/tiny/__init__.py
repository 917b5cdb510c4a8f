"""The bundled model: a Hugging Face checkpoint of a few megabytes, trained by `training/`. README.md is its card."""

from pathlib import Path

__all__ = ["MODEL_DIR"]

MODEL_DIR = Path(__file__).parent
"""The folder to load: `AutoModelForCausalLM.from_pretrained(MODEL_DIR)`, or any engine that reads such a folder."""
