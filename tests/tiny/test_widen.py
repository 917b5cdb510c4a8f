"""Widening a checkpoint: larger heads, the same logits."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from training.widen import widen


def test_wider_model_gives_the_same_logits():
    """A random model with head size 12, and the same widened to head size 16, return equal logits."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=50, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    ids = torch.randint(0, 50, (2, 20))
    expected = model(ids).logits
    wide = widen(model, 16).eval()
    assert wide.config.hidden_size == 64
    torch.testing.assert_close(wide(ids).logits, expected, rtol=1e-4, atol=1e-4)
