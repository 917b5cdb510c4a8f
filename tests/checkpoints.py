"""Small checkpoints for engine tests: random weights made by transformers, with a byte-level tokenizer.

Each fixture writes its checkpoint once per session; do not change the files.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "FAMILIES",
    "VOCAB_SIZE",
    "family_checkpoint",
    "make_checkpoint",
    "opt_checkpoint",
    "qwen2_checkpoint",
    "reference_model",
]

VOCAB_SIZE = 320
"""256 bytes, a few special tokens, and ids that occur in no text."""
EOS_TOKEN = "<|endoftext|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
}
_CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}  # Gemma 2's own hardly bend a small model's
FAMILIES: dict[str, dict[str, Any]] = {
    # keyed by model_type; windows are shorter than the tests' prompts, so they matter
    "gemma2": {**_SMALL, "head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": 20, **_CAPS},
    "gemma3_text": {
        **_SMALL,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        "head_dim": 24,
        "query_pre_attn_scalar": 20,
        "sliding_window": 20,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 2.0},
        },
    },
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "initializer_range": 0.15},
    "llama": {
        **_SMALL,
        "head_dim": 24,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "mistral": {**_SMALL, "sliding_window": 24},
    "opt": {
        "hidden_size": 64,
        "ffn_dim": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "word_embed_proj_dim": 64,
        "init_std": 0.15,
    },
    "phi3": {**_SMALL, "sliding_window": 20, "partial_rotary_factor": 0.75},
    "qwen2": {**_SMALL, "tie_word_embeddings": True},
    "qwen3": {**_SMALL, "head_dim": 32},
}
"""One small model of each family that can run."""


def make_checkpoint(
    folder: Path, model_type: str, *, seed: int = 0, max_shard_size: str = "5GB", dtype: str = "float32", **config: Any
) -> Path:
    """Write a checkpoint of this `model_type` with random weights and a tokenizer, and return its folder.

    The dtype is float32 by default. `config` overrides the small configuration. Biases and norms are random too, so a
    model that omits one fails.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {
        "vocab_size": VOCAB_SIZE,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "pad_token_id": 256,
        **FAMILIES[model_type],
    }
    hf_config = AutoConfig.for_model(model_type, **(settings | config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(hf_config, dtype=torch.float32).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=max_shard_size)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose ids 0..255 are the bytes of UTF-8, followed by three special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (EOS_TOKEN, "<|im_start|>", "<|im_end|>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS_TOKEN, pad_token=EOS_TOKEN)
    fast.chat_template = _CHAT_TEMPLATE
    fast.save_pretrained(folder)


def change_config(folder: Path, **changes: Any) -> None:
    """Change entries of a checkpoint's config.json; None removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def reference_model(folder: Path) -> Any:
    """The checkpoint run by transformers in float32: the reference for our models."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def family_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family's checkpoint, made at its first use."""
    return cache(lambda family: make_checkpoint(tmp_path_factory.mktemp(family), family))


@pytest.fixture(scope="session")
def qwen2_checkpoint(family_checkpoint: Callable[[str], Path]) -> Path:
    """A Qwen2 model with tied embeddings and grouped-query attention."""
    return family_checkpoint("qwen2")


@pytest.fixture(scope="session")
def opt_checkpoint(family_checkpoint: Callable[[str], Path]) -> Path:
    """An OPT model with norms before its blocks."""
    return family_checkpoint("opt")
