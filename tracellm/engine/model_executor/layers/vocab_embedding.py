"""Input embedding and output layer: token ids to vectors, and vectors to a score for each token id.

vLLM: vllm/model_executor/layers/vocab_parallel_embedding.py, with the same names. Left out: tensor
parallelism, padding.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracellm.engine.model_executor.ops import current_ops

__all__ = ["ParallelLMHead", "VocabParallelEmbedding"]


class VocabParallelEmbedding(nn.Module):
    """One vector for each token id; weight [vocabulary, embedding_dim]."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim), requires_grad=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return vectors [T, embedding_dim] for ids int [T]."""
        return F.embedding(input_ids, self.weight)


class ParallelLMHead(nn.Module):
    """Output layer: one score (logit) for each token id of the vocabulary."""

    def __init__(self, num_embeddings: int, embedding_dim: int, tied_to: VocabParallelEmbedding | None) -> None:
        """Create the layer; `tied_to`: input embedding to share the weight with, if config.json ties them."""
        super().__init__()
        self.ops = current_ops()
        self.weight = (
            nn.Parameter(torch.empty(num_embeddings, embedding_dim), requires_grad=False)
            if tied_to is None
            else tied_to.weight
        )

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return logits [N, vocabulary] for hidden states [N, embedding_dim]."""
        return self.ops.linear(hidden_states, self.weight, None)
