"""Qwen3: Qwen2 with a norm of each query and key head, and without biases there.

The norm bounds the scores in training. Built on qwen2.py; only the attention differs.
(https://arxiv.org/abs/2505.09388)

vLLM: vllm/model_executor/models/qwen3.py. Left out: what qwen2.py leaves out.
"""

from typing import ClassVar

from torch import Tensor
from transformers import Qwen3Config

from tracellm.engine.model_executor.layers.layernorm import RMSNorm
from tracellm.engine.model_executor.layers.rotary_embedding import RotaryEmbedding
from tracellm.engine.model_executor.models.qwen2 import Qwen2Attention, Qwen2DecoderLayer, Qwen2ForCausalLM, Qwen2Model

__all__ = ["Qwen3Attention", "Qwen3DecoderLayer", "Qwen3ForCausalLM", "Qwen3Model"]


class Qwen3Attention(Qwen2Attention):
    """Projections, a norm for each query and key head, rotary embedding, attention, output projection."""

    def __init__(self, config: Qwen3Config, rotary_emb: RotaryEmbedding, prefix: str) -> None:
        super().__init__(config, rotary_emb, prefix, qkv_bias=config.attention_bias, o_bias=config.attention_bias)
        self.q_norm = RMSNorm(rotary_emb.head_size, eps=config.rms_norm_eps)
        self.k_norm = RMSNorm(rotary_emb.head_size, eps=config.rms_norm_eps)

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        qkv = self.qkv_proj(hidden_states)
        query, key, value = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        head_size = self.rotary_emb.head_size
        query = self.q_norm(query.unflatten(-1, (-1, head_size))).flatten(1)  # [T, H * D] by way of [T, H, D]
        key = self.k_norm(key.unflatten(-1, (-1, head_size))).flatten(1)
        query, key = self.rotary_emb(positions, query, key)
        return self.o_proj(self.attn(query, key, value))


class Qwen3DecoderLayer(Qwen2DecoderLayer):
    """Decoder layer with Qwen3's attention."""

    attention_cls: ClassVar = Qwen3Attention


class Qwen3Model(Qwen2Model):
    """Model with Qwen3's layers."""

    layer_cls: ClassVar = Qwen3DecoderLayer


class Qwen3ForCausalLM(Qwen2ForCausalLM):
    """Model with its output layer."""

    model_cls: ClassVar = Qwen3Model
