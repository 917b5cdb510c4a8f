"""OPT: learned positions, layer norm before or after each block, multi-head attention, a ReLU feed-forward.

In a request's life: `GPUModelRunner._model_forward` calls `forward` once a step, `compute_logits` follows for the
tokens that sample. The file reads from the inside out, as qwen2.py does.

vLLM: vllm/model_executor/models/opt.py. Left out: quantization.
"""

from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import OPTConfig

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.distributed.parallel_state import get_pp_group
from tracellm.engine.model_executor.layers.attention import Attention
from tracellm.engine.model_executor.layers.linear import (
    ColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from tracellm.engine.model_executor.layers.vocab_embedding import Embedding, ParallelLMHead, VocabParallelEmbedding
from tracellm.engine.model_executor.models.utils import (
    CausalLM,
    IntermediateTensors,
    check_config,
    has_embedding,
    load_parameters,
    make_if,
    make_layers,
)

__all__ = [
    "OPTAttention",
    "OPTDecoder",
    "OPTDecoderLayer",
    "OPTForCausalLM",
    "OPTLearnedPositionalEmbedding",
    "OPTModel",
]


class OPTLearnedPositionalEmbedding(Embedding):
    """One vector for each position; the table's first two rows are unused."""

    OFFSET = 2

    def __init__(self, num_positions: int, embedding_dim: int) -> None:
        super().__init__(num_positions + self.OFFSET, embedding_dim)

    def forward(self, positions: Tensor) -> Tensor:
        """Return vectors [T, hidden] for positions int [T]."""
        return super().forward(positions + self.OFFSET)


class OPTAttention(nn.Module):
    """Projections, attention over the KV cache, output projection."""

    def __init__(self, config: OPTConfig, prefix: str) -> None:
        super().__init__()
        total_heads = config.num_attention_heads
        head_size = config.hidden_size // total_heads
        self.qkv_proj = QKVParallelLinear(
            config.hidden_size, head_size, total_heads, total_heads, bias=config.enable_bias
        )
        num_heads = self.qkv_proj.num_heads
        self.out_proj = RowParallelLinear(config.hidden_size, config.hidden_size, bias=config.enable_bias)
        self.attn = Attention(num_heads, head_size, head_size**-0.5, num_heads, prefix=f"{prefix}.attn")

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        query, key, value = self.qkv_proj(hidden_states).chunk(3, dim=-1)
        return self.out_proj(self.attn(query, key, value))


class OPTDecoderLayer(nn.Module):
    """Attention, then the feed-forward block, each with a residual connection; the norms come before them, or after."""

    def __init__(self, config: OPTConfig, prefix: str) -> None:
        super().__init__()
        self.do_layer_norm_before = config.do_layer_norm_before
        affine = config.layer_norm_elementwise_affine
        self.self_attn = OPTAttention(config, prefix=f"{prefix}.self_attn")
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, elementwise_affine=affine)
        self.fc1 = ColumnParallelLinear(config.hidden_size, config.ffn_dim, bias=config.enable_bias)
        self.fc2 = RowParallelLinear(config.ffn_dim, config.hidden_size, bias=config.enable_bias)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, elementwise_affine=affine)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        residual = hidden_states
        if self.do_layer_norm_before:  # all sizes but 350m
            hidden_states = self.self_attn_layer_norm(hidden_states)
        hidden_states = residual + self.self_attn(hidden_states)
        if not self.do_layer_norm_before:
            hidden_states = self.self_attn_layer_norm(hidden_states)

        residual = hidden_states
        if self.do_layer_norm_before:
            hidden_states = self.final_layer_norm(hidden_states)
        hidden_states = residual + self.fc2(F.relu(self.fc1(hidden_states)))
        if not self.do_layer_norm_before:
            hidden_states = self.final_layer_norm(hidden_states)
        return hidden_states


class OPTDecoder(nn.Module):
    """Embeddings, all decoder layers, the final norm; projections where the embedding's width differs."""

    def __init__(self, config: OPTConfig, prefix: str) -> None:
        super().__init__()
        width, hidden = config.word_embed_proj_dim, config.hidden_size
        group, is_projected = get_pp_group(), width != hidden
        has_norm = config.do_layer_norm_before and not config._remove_final_layer_norm
        self.embed_tokens = make_if(has_embedding(config), lambda: VocabParallelEmbedding(config.vocab_size, width))
        self.embed_positions = make_if(
            group.is_first_rank, lambda: OPTLearnedPositionalEmbedding(config.max_position_embeddings, hidden)
        )
        self.project_in = make_if(
            group.is_first_rank, lambda: ReplicatedLinear(width, hidden, bias=False) if is_projected else nn.Identity()
        )
        self.start_layer, self.end_layer, self.layers = make_layers(
            config.num_hidden_layers, lambda i: OPTDecoderLayer(config, prefix=f"{prefix}.layers.{i}")
        )
        affine = config.layer_norm_elementwise_affine
        self.final_layer_norm = make_if(
            group.is_last_rank, lambda: nn.LayerNorm(hidden, elementwise_affine=affine) if has_norm else nn.Identity()
        )
        self.project_out = make_if(
            group.is_last_rank, lambda: ReplicatedLinear(hidden, width, bias=False) if is_projected else nn.Identity()
        )

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return vectors [T, width] for ids [T]."""
        return self.embed_tokens(input_ids)

    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`; the final hidden states are [T, width]."""
        if intermediate_tensors is None:
            hidden_states = self.project_in(self.embed_input_ids(input_ids)) + self.embed_positions(positions)
        else:
            hidden_states = intermediate_tensors["hidden_states"]
        for layer in islice(self.layers, self.start_layer, self.end_layer):
            hidden_states = layer(hidden_states)
        if not get_pp_group().is_last_rank:
            return IntermediateTensors({"hidden_states": hidden_states})
        hidden_states = self.project_out(self.final_layer_norm(hidden_states))
        return hidden_states


class OPTModel(nn.Module):
    """Container of the decoder, since checkpoints name their tensors `model.decoder.*`."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.decoder = OPTDecoder(vllm_config.model_config.hf_config, prefix=f"{prefix}.decoder")

    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """See `OPTDecoder.forward`."""
        output: Tensor | IntermediateTensors = self.decoder(input_ids, positions, intermediate_tensors)
        return output


class OPTForCausalLM(CausalLM):
    """Model with its output layer."""

    packed_modules_mapping: ClassVar = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config, prefix)
        config = vllm_config.model_config.hf_config
        check_config(config, activation_function="relu")
        self.model = OPTModel(vllm_config, prefix=f"{prefix}model")
        tied_to = self.model.decoder.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = make_if(
            get_pp_group().is_last_rank, lambda: ParallelLMHead(config.vocab_size, config.word_embed_proj_dim, tied_to)
        )

    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`."""
        return self.model(input_ids, positions, intermediate_tensors)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """See `CausalLM.compute_logits`."""
        return self.lm_head(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """See `CausalLM.load_weights`. Some checkpoints lack the leading `model.`."""
        renamed = ((f"model.{name}" if name.startswith("decoder.") else name, tensor) for name, tensor in weights)
        return load_parameters(self, renamed, ignore=("lm_head.",))
