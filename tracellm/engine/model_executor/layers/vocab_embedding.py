"""Token ids to vectors, and vectors to a score for each token id.

vLLM: vllm/model_executor/layers/vocab_parallel_embedding.py, with the same names. Left out: the split over devices,
padding.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracellm.engine.model_executor.ops import current_ops

__all__ = ["ParallelLMHead", "VocabParallelEmbedding"]


class VocabParallelEmbedding(nn.Module):
    """One vector for each id; weight [vocabulary, embedding_dim]."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim), requires_grad=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Shapes: ids int [T]; the result [T, embedding_dim]."""
        return F.embedding(input_ids, self.weight)


class ParallelLMHead(nn.Module):
    """The output layer: one score (logit) for each id of the vocabulary."""

    def __init__(self, num_embeddings: int, embedding_dim: int, tied_to: VocabParallelEmbedding | None) -> None:
        """`tied_to`: the input embedding whose weight it shares, where config.json ties them."""
        super().__init__()
        self.ops = current_ops()
        self.weight = (
            nn.Parameter(torch.empty(num_embeddings, embedding_dim), requires_grad=False)
            if tied_to is None
            else tied_to.weight
        )

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Shapes: hidden states [N, embedding_dim]; the logits [N, vocabulary]."""
        return self.ops.linear(hidden_states, self.weight, None)
