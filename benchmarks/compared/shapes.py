"""The models of benchmarks/compare.py: the bundled one, and the shapes of well-known ones with random weights.

Each is for one device, since the work for a GPU would take a CPU days. Random weights take as long to compute as
trained ones. They are large enough for each layer to change the output; otherwise a model would repeat its last token.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tracellm.bench.workload import Lengths

__all__ = ["SHAPES", "Shape"]

_QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "vocab_size": 151_936,
    "max_position_embeddings": 2048,
    "initializer_range": 0.04,
    "rope_theta": 1_000_000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "bos_token_id": 151_643,
    "eos_token_id": 151_645,
    "pad_token_id": 151_643,
}


@dataclass(frozen=True)
class Shape:
    """A model to measure, and its workload."""

    title: tuple[str, str]
    """In English and Chinese."""
    config: dict[str, Any] | None
    """Configuration of the random weights; None for the bundled model."""
    requests: int
    inputs: Lengths
    outputs: Lengths
    decode_inputs: int
    """Tokens of each prompt where decoding is measured; equal lengths keep the batch full."""
    decode_outputs: int
    device: Literal["cpu", "cuda"] = "cpu"
    """The device it is measured on."""
    kv_tokens: int | None = None
    """Tokens in each engine's KV cache; None for all requests at their longest."""

    def folder(self, name: str, parent: Path, dtype: str) -> Path:
        """Return the checkpoint's folder, made in `parent` if needed (up to a minute and 3 GB)."""
        if self.config is None:
            import tracellm

            return Path(tracellm.__file__).parent / "tiny"
        folder = parent / f"{name}-{dtype}"
        if not (folder / "made").exists():
            _make(folder, self.config, dtype)
            (folder / "made").touch()
        return folder

    @property
    def vocab_size(self) -> int:
        """Upper bound of token ids."""
        if self.config is not None:
            return int(self.config["vocab_size"])
        return int(json.loads((self.folder("", Path(), "") / "config.json").read_text())["vocab_size"])

    @property
    def longest(self) -> int:
        """Number of tokens, prompt and output, of the longest request."""
        return max(self.inputs.most + self.outputs.most, self.decode_inputs + self.decode_outputs)


SHAPES: dict[str, Shape] = {
    "toy": Shape(
        title=("The bundled model, 4 layers", "内置模型，4 层"),
        config=None,
        requests=32,
        inputs=Lengths(32, 256),
        outputs=Lengths(32, 128),
        decode_inputs=32,
        decode_outputs=128,
    ),
    "0.5B": Shape(
        title=("Shape of Qwen2.5-0.5B, random weights", "Qwen2.5-0.5B 的形状，随机权重"),
        config={
            **_QWEN,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
        },
        requests=16,
        inputs=Lengths(32, 256),
        outputs=Lengths(32, 128),
        decode_inputs=32,
        decode_outputs=48,
    ),
    "1.5B": Shape(
        title=("Shape of Qwen2.5-1.5B, random weights", "Qwen2.5-1.5B 的形状，随机权重"),
        config={
            **_QWEN,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
        },
        requests=16,
        inputs=Lengths(32, 256),
        outputs=Lengths(32, 128),
        decode_inputs=32,
        decode_outputs=32,
    ),
    # The requests of nano-vllm's benchmark (bench.py there).
    "0.6B": Shape(
        title=("Shape of Qwen3-0.6B, random weights", "Qwen3-0.6B 的形状，随机权重"),
        config={
            **_QWEN,
            "model_type": "qwen3",
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
        requests=256,
        inputs=Lengths(100, 1024),
        outputs=Lengths(100, 1024),
        decode_inputs=128,
        decode_outputs=512,
        device="cuda",
        kv_tokens=196_608,  # 22.5 GB, so that three engines fit beside each other; these requests need less
    ),
}


def _make(folder: Path, config: dict[str, Any], dtype: str) -> None:
    """Write a checkpoint with random weights of this dtype, the same on every machine."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    hf_config = AutoConfig.for_model(**config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(hf_config, dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
