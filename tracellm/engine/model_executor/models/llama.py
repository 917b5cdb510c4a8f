"""Llama 1 to 3: rotary positions, RMS norm before each block, grouped-query attention, a gated feed-forward.

Built on qwen2.py: Llama differs only in its biases. Mistral, at the end, adds a sliding window. Phi-3 is built on this
file.

config.json's `pretraining_tp` is ignored: it splits matrix products for training, and only affects rounding.

vLLM: vllm/model_executor/models/llama.py. Left out: quantization.
"""

from typing import ClassVar

from transformers import LlamaConfig

from tracellm.engine.model_executor.layers.rotary_embedding import RotaryEmbedding
from tracellm.engine.model_executor.models.qwen2 import (
    Qwen2Attention,
    Qwen2DecoderLayer,
    Qwen2ForCausalLM,
    Qwen2MLP,
    Qwen2Model,
)

__all__ = ["LlamaAttention", "LlamaDecoderLayer", "LlamaForCausalLM", "LlamaMLP", "LlamaModel", "MistralForCausalLM"]


class LlamaMLP(Qwen2MLP):
    """Gated feed-forward block, with biases if config.json has `mlp_bias`."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, bias=getattr(config, "mlp_bias", False))


class LlamaAttention(Qwen2Attention):
    """Projections, rotary embedding, attention over the KV cache, output projection; biases in all or none."""

    def __init__(self, config: LlamaConfig, rotary_emb: RotaryEmbedding, prefix: str) -> None:
        bias = getattr(config, "attention_bias", False)
        super().__init__(config, rotary_emb, prefix, qkv_bias=bias, o_bias=bias)


class LlamaDecoderLayer(Qwen2DecoderLayer):
    """Decoder layer with Llama's attention and feed-forward block."""

    attention_cls: ClassVar = LlamaAttention
    mlp_cls: ClassVar = LlamaMLP


class LlamaModel(Qwen2Model):
    """Model with Llama's layers."""

    layer_cls: ClassVar = LlamaDecoderLayer


class LlamaForCausalLM(Qwen2ForCausalLM):
    """Model with its output layer."""

    model_cls: ClassVar = LlamaModel


class MistralForCausalLM(LlamaForCausalLM):
    """Mistral, whose `sliding_window` in config.json `LlamaAttention` reads; null in later versions: full attention.

    Information still travels n windows back in n layers. (https://arxiv.org/abs/2310.06825)
    """
