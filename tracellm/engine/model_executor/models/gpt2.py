"""GPT-2: learned positions, layer norm before each block, multi-head attention, a GELU feed-forward.

In a request's life: `GPUModelRunner._model_forward` calls `forward` once per step, then `compute_logits` for the tokens
that sample.
(https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)

vLLM: vllm/model_executor/models/gpt2.py. Left out: quantization.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.distributed.parallel_state import get_pp_group
from tracellm.engine.model_executor.layers.attention import Attention
from tracellm.engine.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear
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

__all__ = ["GPT2MLP", "GPT2Attention", "GPT2Block", "GPT2LMHeadModel", "GPT2Model"]


class GPT2Attention(nn.Module):
    """Projections, attention over the KV cache, output projection."""

    def __init__(self, config: GPT2Config, prefix: str) -> None:
        super().__init__()
        hidden_size, total_heads = config.hidden_size, config.num_attention_heads
        head_size = hidden_size // total_heads
        self.c_attn = QKVParallelLinear(hidden_size, head_size, total_heads, total_heads, bias=True)
        num_heads = self.c_attn.num_heads
        self.c_proj = RowParallelLinear(hidden_size, hidden_size, bias=True)
        self.attn = Attention(num_heads, head_size, head_size**-0.5, num_heads, prefix=f"{prefix}.attn")

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        query, key, value = self.c_attn(hidden_states).chunk(3, dim=-1)
        return self.c_proj(self.attn(query, key, value))


class GPT2MLP(nn.Module):
    """Feed-forward block: `c_proj(gelu(c_fc(x)))`."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        intermediate_size = config.n_inner or 4 * config.hidden_size
        self.c_fc = ColumnParallelLinear(config.hidden_size, intermediate_size, bias=True)
        self.c_proj = RowParallelLinear(intermediate_size, config.hidden_size, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))  # `gelu_new`


class GPT2Block(nn.Module):
    """Attention, then the feed-forward block; each reads the norm of the residual stream and adds to the stream."""

    def __init__(self, config: GPT2Config, prefix: str) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.attn = GPT2Attention(config, prefix=f"{prefix}.attn")
        self.ln_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.mlp = GPT2MLP(config)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return [T, hidden] for [T, hidden]."""
        hidden_states = hidden_states + self.attn(self.ln_1(hidden_states))
        return hidden_states + self.mlp(self.ln_2(hidden_states))


class GPT2Model(nn.Module):
    """Embeddings of tokens and positions, all blocks, the final norm."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        group, size = get_pp_group(), config.hidden_size
        self.wte = make_if(has_embedding(config), lambda: VocabParallelEmbedding(config.vocab_size, size))
        self.wpe = make_if(group.is_first_rank, lambda: Embedding(config.max_position_embeddings, size))
        self.start_layer, self.end_layer, self.h = make_layers(
            config.num_hidden_layers, lambda i: GPT2Block(config, prefix=f"{prefix}.h.{i}")
        )
        self.ln_f = make_if(group.is_last_rank, lambda: nn.LayerNorm(size, eps=config.layer_norm_epsilon))

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return vectors [T, hidden] for ids [T]."""
        return self.wte(input_ids)

    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`."""
        if intermediate_tensors is None:
            hidden_states = self.embed_input_ids(input_ids) + self.wpe(positions)
        else:
            hidden_states = intermediate_tensors["hidden_states"]
        for block in islice(self.h, self.start_layer, self.end_layer):
            hidden_states = block(hidden_states)
        if not get_pp_group().is_last_rank:
            return IntermediateTensors({"hidden_states": hidden_states})
        hidden_states = self.ln_f(hidden_states)
        return hidden_states


class GPT2LMHeadModel(CausalLM):
    """Model with its output layer."""

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config, prefix)
        config = vllm_config.model_config.hf_config
        check_config(
            config,
            activation_function="gelu_new",
            add_cross_attention=False,
            reorder_and_upcast_attn=False,
            scale_attn_by_inverse_layer_idx=False,
            scale_attn_weights=True,
        )
        self.transformer = GPT2Model(vllm_config, prefix=f"{prefix}transformer")
        tied_to = self.transformer.wte if config.tie_word_embeddings else None
        self.lm_head = make_if(
            get_pp_group().is_last_rank, lambda: ParallelLMHead(config.vocab_size, config.hidden_size, tied_to)
        )

    def forward(
        self, input_ids: Tensor, positions: Tensor, intermediate_tensors: IntermediateTensors | None = None
    ) -> Tensor | IntermediateTensors:
        """See `CausalLM.forward`."""
        return self.transformer(input_ids, positions, intermediate_tensors)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """See `CausalLM.compute_logits`."""
        return self.lm_head(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
        """See `CausalLM.load_weights`. The oldest checkpoints also hold the causal masks, which are skipped."""
        return load_parameters(self, _as_linear(weights), ignore=("lm_head.", ".attn.bias", ".attn.masked_bias"))


def _as_linear(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Transpose the matrices, which GPT-2 multiplies from the right, and complete the names.

    Checkpoints without the output layer lack the leading `transformer.`.
    """
    for name, tensor in weights:
        if not name.startswith(("transformer.", "lm_head.")):
            name = f"transformer.{name}"
        yield name, tensor.t() if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else tensor
