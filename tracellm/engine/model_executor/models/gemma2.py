"""Gemma 2: sliding window in every other layer, soft caps of scores and logits, norms before and after each block.

Called like qwen2.py, and read in the same order. Source: https://arxiv.org/abs/2408.00118

vLLM: vllm/model_executor/models/gemma2.py. Left out: quantization.
"""

from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import Gemma2Config

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.distributed.parallel_state import get_pp_group
from tracellm.engine.model_executor.layers.activation import GeluAndMul
from tracellm.engine.model_executor.layers.attention import Attention
from tracellm.engine.model_executor.layers.layernorm import GemmaRMSNorm
from tracellm.engine.model_executor.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from tracellm.engine.model_executor.layers.rotary_embedding import RotaryEmbedding, get_rope
from tracellm.engine.model_executor.layers.vocab_embedding import ParallelLMHead, VocabParallelEmbedding
from tracellm.engine.model_executor.models.utils import (
    CausalLM,
    IntermediateTensors,
    check_config,
    get_sliding_window,
    has_embedding,
    load_parameters,
    make_if,
    make_layers,
)

__all__ = ["Gemma2Attention", "Gemma2DecoderLayer", "Gemma2ForCausalLM", "Gemma2MLP", "Gemma2Model"]


class Gemma2MLP(nn.Module):
    """Gated feed-forward block: `down(gelu(gate(x)) * up(x))`."""

    def __init__(self, config: Gemma2Config) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(config.hidden_size, [config.intermediate_size] * 2, bias=False)
        self.down_proj = RowParallelLinear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = GeluAndMul()

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        gate_up = self.gate_up_proj(x)  # [T, 2 * intermediate]
        return self.down_proj(self.act_fn(gate_up))


class Gemma2Attention(nn.Module):
    """Projections, rotary embedding, attention over the KV cache, output projection."""

    def __init__(self, config: Gemma2Config, rotary_emb: RotaryEmbedding, prefix: str) -> None:
        super().__init__()
        total_heads, total_kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_size, bias = rotary_emb.head_size, config.attention_bias
        self.qkv_proj = QKVParallelLinear(config.hidden_size, head_size, total_heads, total_kv_heads, bias=bias)
        num_heads, num_kv_heads = self.qkv_proj.num_heads, self.qkv_proj.num_kv_heads
        self.q_size, self.kv_size = num_heads * head_size, num_kv_heads * head_size
        self.o_proj = RowParallelLinear(total_heads * head_size, config.hidden_size, bias=bias)
        self.rotary_emb = rotary_emb
        self.attn = Attention(
            num_heads,
            head_size,
            config.query_pre_attn_scalar**-0.5,
            num_kv_heads,
            prefix=f"{prefix}.attn",
            sliding_window=get_sliding_window(config, prefix),
            logits_soft_cap=config.attn_logit_softcapping,
        )

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        qkv = self.qkv_proj(hidden_states)
        query, key, value = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        query, key = self.rotary_emb(positions, query, key)
        return self.o_proj(self.attn(query, key, value))


class Gemma2DecoderLayer(nn.Module):
    """Attention, then the feed-forward block; each reads a norm of the residual stream and adds its own norm to it."""

    attention_cls: ClassVar = Gemma2Attention

    def __init__(self, config: Gemma2Config, rotary_emb: RotaryEmbedding, prefix: str) -> None:
        super().__init__()
        self.self_attn = self.attention_cls(config, rotary_emb, prefix=f"{prefix}.self_attn")
        self.mlp = Gemma2MLP(config)
        self.input_layernorm = GemmaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = GemmaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.pre_feedforward_layernorm = GemmaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_feedforward_layernorm = GemmaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, positions: Tensor, hidden_states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the block's output and the residual stream, to which the next norm adds it; both [T, hidden]."""
        if residual is None:  # the first layer
            residual = hidden_states
            hidden_states = self.input_layernorm(hidden_states)
        else:
            hidden_states, residual = self.input_layernorm(hidden_states, residual)
        hidden_states = self.post_attention_layernorm(self.self_attn(positions, hidden_states))
        hidden_states, residual = self.pre_feedforward_layernorm(hidden_states, residual)
        return self.post_feedforward_layernorm(self.mlp(hidden_states)), residual


class Gemma2Model(nn.Module):
    """Embedding, all decoder layers, the final norm."""

    layer_cls: ClassVar = Gemma2DecoderLayer
    normalizer: Tensor
    """Factor of the embeddings: the square root of the hidden size, in the model's dtype; a scalar."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        head_size, max_position = vllm_config.model_config.get_head_size(), vllm_config.model_config.max_model_len
        vocab_size, hidden_size = config.vocab_size, config.hidden_size
        self.embed_tokens = make_if(has_embedding(config), lambda: VocabParallelEmbedding(vocab_size, hidden_size))
        # By layer type: Gemma 3 rotates windowed layers by other angles.
        rotary_emb = {kind: get_rope(config, head_size, max_position, kind) for kind in set(config.layer_types)}
        self.start_layer, self.end_layer, self.layers = make_layers(
            config.num_hidden_layers,
            lambda i: self.layer_cls(config, rotary_emb[config.layer_types[i]], prefix=f"{prefix}.layers.{i}"),
        )
        self.norm = make_if(get_pp_group().is_last_rank, lambda: GemmaRMSNorm(hidden_size, eps=config.rms_norm_eps))
        self.register_buffer("normalizer", torch.tensor(config.hidden_size**0.5), persistent=False)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return vectors [T, hidden] for ids [T]."""
        return self.embed_tokens(input_ids) * self.normalizer

    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`."""
        residual = None
        if intermediate_tensors is None:
            hidden_states = self.embed_input_ids(input_ids)
        else:
            hidden_states, residual = intermediate_tensors["hidden_states"], intermediate_tensors["residual"]
        for layer in islice(self.layers, self.start_layer, self.end_layer):
            hidden_states, residual = layer(positions, hidden_states, residual)
        if not get_pp_group().is_last_rank:
            assert residual is not None
            return IntermediateTensors({"hidden_states": hidden_states, "residual": residual})
        hidden_states, _ = self.norm(hidden_states, residual)
        return hidden_states


class Gemma2ForCausalLM(CausalLM):
    """Model with its output layer."""

    packed_modules_mapping: ClassVar = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }
    model_cls: ClassVar = Gemma2Model

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config, prefix)
        config = vllm_config.model_config.hf_config
        check_config(config, hidden_activation="gelu_pytorch_tanh")
        if getattr(config, "use_bidirectional_attention", False):
            raise ModelLoadError("config.json sets `use_bidirectional_attention`: such a model cannot generate text.")
        self.model = self.model_cls(vllm_config, prefix=f"{prefix}model")
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = make_if(
            get_pp_group().is_last_rank, lambda: ParallelLMHead(config.vocab_size, config.hidden_size, tied_to)
        )
        self.final_logit_softcapping = config.final_logit_softcapping

    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`."""
        return self.model(input_ids, positions, intermediate_tensors)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """See `CausalLM.compute_logits`."""
        logits: Tensor = self.lm_head(hidden_states)
        cap = self.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """See `CausalLM.load_weights`."""
        return load_parameters(self, weights, ignore=("rotary_emb.inv_freq", "lm_head."))
