"""Qwen2 and Qwen2.5: rotary positions, RMS norm before each block, grouped-query attention, a gated feed-forward.

In a request's life: `GPUModelRunner._model_forward` calls `forward` once per step, then `compute_logits` for the tokens
that sample. Begin here to read the models: this file goes from the smallest block to the whole model, the others are
built the same way, and some on this one (Llama, Qwen3). With pipeline parallelism a worker has some of the layers.

Layers may have a sliding window (`use_sliding_window` and `max_window_layers` in config.json), as in transformers;
vLLM 0.11.1 refuses such a model.

vLLM: vllm/model_executor/models/qwen2.py. Left out: quantization.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.distributed.parallel_state import get_pp_group
from tracellm.engine.model_executor.layers.activation import SiluAndMul
from tracellm.engine.model_executor.layers.attention import Attention
from tracellm.engine.model_executor.layers.forward_context import get_shared_attention_metadata
from tracellm.engine.model_executor.layers.layernorm import RMSNorm
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
from tracellm.engine.model_executor.ops import current_ops

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["Qwen2Attention", "Qwen2DecoderLayer", "Qwen2ForCausalLM", "Qwen2MLP", "Qwen2Model"]


class Qwen2MLP(nn.Module):
    """Gated feed-forward block: `down(silu(gate(x)) * up(x))`."""

    def __init__(self, config: PretrainedConfig, bias: bool = False) -> None:
        super().__init__()
        hidden_size, intermediate_size = config.hidden_size, config.intermediate_size
        self.gate_up_proj = MergedColumnParallelLinear(hidden_size, [intermediate_size] * 2, bias=bias)
        self.down_proj = RowParallelLinear(intermediate_size, hidden_size, bias=bias)
        self.act_fn = SiluAndMul()

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        gate_up = self.gate_up_proj(x)  # [T, 2 * intermediate]
        return self.down_proj(self.act_fn(gate_up))


class Qwen2Attention(nn.Module):
    """Projections, rotary embedding, attention over the KV cache, output projection."""

    def __init__(
        self,
        config: PretrainedConfig,
        rotary_emb: RotaryEmbedding,
        prefix: str,
        qkv_bias: bool = True,
        o_bias: bool = False,
    ) -> None:
        super().__init__()
        total_heads, total_kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_size = rotary_emb.head_size
        self.qkv_proj = QKVParallelLinear(config.hidden_size, head_size, total_heads, total_kv_heads, bias=qkv_bias)
        num_heads, num_kv_heads = self.qkv_proj.num_heads, self.qkv_proj.num_kv_heads
        self.q_size, self.kv_size = num_heads * head_size, num_kv_heads * head_size
        self.o_proj = RowParallelLinear(total_heads * head_size, config.hidden_size, bias=o_bias)
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
        """Return [T, hidden] for [T, hidden]."""
        qkv = self.qkv_proj(hidden_states)
        query, key, value = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        query, key = self.rotary_emb(positions, query, key)
        return self.o_proj(self.attn(query, key, value))


class Qwen2DecoderLayer(nn.Module):
    """Attention, then the feed-forward block; each reads the norm of the residual stream and adds to the stream."""

    attention_cls: ClassVar[type[nn.Module]] = Qwen2Attention
    mlp_cls: ClassVar[type[nn.Module]] = Qwen2MLP

    def __init__(self, config: PretrainedConfig, rotary_emb: RotaryEmbedding, prefix: str) -> None:
        super().__init__()
        self.self_attn = self.attention_cls(config, rotary_emb, prefix=f"{prefix}.self_attn")
        self.mlp = self.mlp_cls(config)
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, positions: Tensor, hidden_states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the block's output and the residual stream, to which the next norm adds it; both [T, hidden]."""
        if residual is None:  # the first layer
            residual = hidden_states
            hidden_states = self.input_layernorm(hidden_states)
        else:
            hidden_states, residual = self.input_layernorm(hidden_states, residual)
        hidden_states = self.self_attn(positions, hidden_states)
        hidden_states, residual = self.post_attention_layernorm(hidden_states, residual)
        return self.mlp(hidden_states), residual


class Qwen2Model(nn.Module):
    """Embedding, all decoder layers, the final norm."""

    layer_cls: ClassVar = Qwen2DecoderLayer

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.ops = current_ops()
        config = vllm_config.model_config.hf_config
        vocab_size, hidden_size = config.vocab_size, config.hidden_size
        self.embed_tokens = make_if(has_embedding(config), lambda: VocabParallelEmbedding(vocab_size, hidden_size))
        rotary_emb = get_rope(config, vllm_config.model_config.get_head_size(), vllm_config.model_config.max_model_len)
        self.start_layer, self.end_layer, self.layers = make_layers(
            config.num_hidden_layers, lambda i: self.layer_cls(config, rotary_emb, prefix=f"{prefix}.layers.{i}")
        )
        self.norm = make_if(get_pp_group().is_last_rank, lambda: RMSNorm(hidden_size, eps=config.rms_norm_eps))

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return vectors [T, hidden] for ids [T]."""
        return self.embed_tokens(input_ids)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`; `inputs_embeds`: vectors [T, hidden] instead of ids."""
        residual = None
        if intermediate_tensors is None:
            hidden_states = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
        else:
            hidden_states, residual = intermediate_tensors["hidden_states"], intermediate_tensors["residual"]
        # On a CPU, one call of C++ computes all layers unless a probe or a hook watches one of them, or several workers
        # share them. To debug or change the layers' code, set TRACELLM_OPS=torch.
        output = self.ops.decoder_layers(self.layers, positions, hidden_states, get_shared_attention_metadata())
        if output is None:
            for layer in islice(self.layers, self.start_layer, self.end_layer):
                hidden_states, residual = layer(positions, hidden_states, residual)
        else:
            hidden_states, residual = output
        if not get_pp_group().is_last_rank:
            assert residual is not None
            return IntermediateTensors({"hidden_states": hidden_states, "residual": residual})
        hidden_states, _ = self.norm(hidden_states, residual)
        return hidden_states


class Qwen2ForCausalLM(CausalLM):
    """Model with its output layer."""

    model_cls: ClassVar = Qwen2Model

    packed_modules_mapping: ClassVar = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config, prefix)
        config = vllm_config.model_config.hf_config
        check_config(config, hidden_act="silu", is_causal=True)
        self.model = self.model_cls(vllm_config, prefix=f"{prefix}model")
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = make_if(
            get_pp_group().is_last_rank, lambda: ParallelLMHead(config.vocab_size, config.hidden_size, tied_to)
        )

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`; `inputs_embeds`: vectors [T, hidden] instead of ids, of a prompt with images."""
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """See `CausalLM.compute_logits`."""
        return self.lm_head(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """See `CausalLM.load_weights`."""
        return load_parameters(self, weights, ignore=("rotary_emb.inv_freq", "lm_head."))
