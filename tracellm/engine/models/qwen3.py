"""Qwen3: Qwen2 whose queries and keys are normed, each head by itself, and have no bias.

The norm keeps the scores from growing without bound in training. All but the attention is qwen2.py's.
(https://arxiv.org/abs/2505.09388)

vLLM: vllm/model_executor/models/qwen3.py. Left out: what qwen2.py leaves out.
"""

from typing import ClassVar

from torch import Tensor, nn
from transformers import Qwen3Config

from tracellm.engine.layers.attention import Attention
from tracellm.engine.layers.layernorm import RMSNorm
from tracellm.engine.layers.linear import QKVParallelLinear, ReplicatedLinear
from tracellm.engine.layers.rotary_embedding import RotaryEmbedding
from tracellm.engine.models.qwen2 import Qwen2DecoderLayer, Qwen2ForCausalLM, Qwen2Model
from tracellm.engine.models.utils import get_sliding_window

__all__ = ["Qwen3Attention", "Qwen3DecoderLayer", "Qwen3ForCausalLM", "Qwen3Model"]


class Qwen3Attention(nn.Module):
    """Projections, a norm for each query and key head, rotary embedding, attention, output projection."""

    def __init__(self, config: Qwen3Config, rotary_emb: RotaryEmbedding, prefix: str) -> None:
        super().__init__()
        num_heads, num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_size = rotary_emb.head_size
        self.q_size, self.kv_size = num_heads * head_size, num_kv_heads * head_size
        bias = config.attention_bias
        self.qkv_proj = QKVParallelLinear(config.hidden_size, head_size, num_heads, num_kv_heads, bias=bias)
        self.o_proj = ReplicatedLinear(self.q_size, config.hidden_size, bias=bias)
        self.q_norm = RMSNorm(head_size, eps=config.rms_norm_eps)
        self.k_norm = RMSNorm(head_size, eps=config.rms_norm_eps)
        self.rotary_emb = rotary_emb
        self.attn = Attention(
            num_heads,
            head_size,
            head_size**-0.5,
            num_kv_heads,
            prefix=f"{prefix}.attn",
            sliding_window=get_sliding_window(config, prefix),
        )

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """[T, hidden] to [T, hidden]."""
        qkv = self.qkv_proj(hidden_states)
        query, key, value = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        head_size = self.rotary_emb.head_size
        query = self.q_norm(query.unflatten(-1, (-1, head_size))).flatten(1)  # [T, H * D] by way of [T, H, D]
        key = self.k_norm(key.unflatten(-1, (-1, head_size))).flatten(1)
        query, key = self.rotary_emb(positions, query, key)
        return self.o_proj(self.attn(query, key, value))


class Qwen3DecoderLayer(Qwen2DecoderLayer):
    """Qwen2's, with Qwen3's attention."""

    attention_cls: ClassVar = Qwen3Attention


class Qwen3Model(Qwen2Model):
    """Qwen2's, with Qwen3's layers."""

    layer_cls: ClassVar = Qwen3DecoderLayer


class Qwen3ForCausalLM(Qwen2ForCausalLM):
    """The model with its output layer."""

    model_cls: ClassVar = Qwen3Model
