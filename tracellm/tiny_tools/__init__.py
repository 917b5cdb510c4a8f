"""The bundled model that calls tools: a Qwen2 checkpoint, trained by `training/tools/`, with its card."""

from pathlib import Path

__all__ = ["MODEL_DIR"]

MODEL_DIR = Path(__file__).parent
"""The folder to load: `AutoModelForCausalLM.from_pretrained(MODEL_DIR)`, or `LLM("tiny-tools")`."""
