"""Gemma 3, text only: Gemma 2 with norms of query and key heads, and five windowed layers for each full one.

Windowed layers have rotary frequencies of their own, not scaled for long contexts. The norms replace Gemma 2's soft
caps. Source: https://arxiv.org/abs/2503.19786

vLLM: vllm/model_executor/models/gemma3.py. Left out: what gemma2.py leaves out, and images (`gemma3_mm.py`).
"""

from typing import ClassVar

from torch import Tensor
from transformers import Gemma3TextConfig

from tracellm.engine.model_executor.layers.layernorm import GemmaRMSNorm
from tracellm.engine.model_executor.layers.rotary_embedding import RotaryEmbedding
from tracellm.engine.model_executor.models.gemma2 import (
    Gemma2Attention,
    Gemma2DecoderLayer,
    Gemma2ForCausalLM,
    Gemma2Model,
)

__all__ = ["Gemma3Attention", "Gemma3DecoderLayer", "Gemma3ForCausalLM", "Gemma3Model"]


class Gemma3Attention(Gemma2Attention):
    """Projections, a norm for each query and key head, rotary embedding, attention, output projection."""

    def __init__(self, config: Gemma3TextConfig, rotary_emb: RotaryEmbedding, prefix: str) -> None:
        super().__init__(config, rotary_emb, prefix)
        self.q_norm = GemmaRMSNorm(rotary_emb.head_size, eps=config.rms_norm_eps)
        self.k_norm = GemmaRMSNorm(rotary_emb.head_size, eps=config.rms_norm_eps)

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        qkv = self.qkv_proj(hidden_states)
        query, key, value = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        head_size = self.rotary_emb.head_size
        query = self.q_norm(query.unflatten(-1, (-1, head_size))).flatten(1)  # [T, H * D] by way of [T, H, D]
        key = self.k_norm(key.unflatten(-1, (-1, head_size))).flatten(1)
        query, key = self.rotary_emb(positions, query, key)
        return self.o_proj(self.attn(query, key, value))


class Gemma3DecoderLayer(Gemma2DecoderLayer):
    """Decoder layer with Gemma 3's attention."""

    attention_cls: ClassVar = Gemma3Attention


class Gemma3Model(Gemma2Model):
    """Model with Gemma 3's layers."""

    layer_cls: ClassVar = Gemma3DecoderLayer


class Gemma3ForCausalLM(Gemma2ForCausalLM):
    """Model with its output layer."""

    model_cls: ClassVar = Gemma3Model
