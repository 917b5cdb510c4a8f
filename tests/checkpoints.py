"""Small checkpoints with random weights, made by transformers, with a byte-level tokenizer: what engine tests load.

The fixtures live as long as the session, so each checkpoint is written once; do not change their files.
"""

import json
from pathlib import Path
from typing import Any

import pytest

__all__ = ["VOCAB_SIZE", "make_checkpoint", "opt_checkpoint", "qwen2_checkpoint", "reference_model"]

VOCAB_SIZE = 320
"""256 bytes, a few special tokens, and ids that no text has."""
EOS_TOKEN = "<|endoftext|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.15,
        "tie_word_embeddings": True,
    },
    "opt": {
        "hidden_size": 64,
        "ffn_dim": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "word_embed_proj_dim": 64,
        "init_std": 0.15,
    },
}


def make_checkpoint(
    folder: Path, model_type: str, *, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    """Write a float32 checkpoint of this `model_type` with random weights and a tokenizer; its folder.

    `config` overrides the small configuration; biases and norms are random too, so that a model that forgets one fails.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {
        "vocab_size": VOCAB_SIZE,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "pad_token_id": 256,
        **_CONFIGS[model_type],
    }
    hf_config = AutoConfig.for_model(model_type, **(settings | config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(hf_config, dtype=torch.float32).eval()
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
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
    """The checkpoint as transformers runs it, in float32: what our models are held against."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def qwen2_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 model with tied embeddings and grouped-query attention."""
    return make_checkpoint(tmp_path_factory.mktemp("qwen2"), "qwen2")


@pytest.fixture(scope="session")
def opt_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OPT model that norms before its blocks."""
    return make_checkpoint(tmp_path_factory.mktemp("opt"), "opt")
