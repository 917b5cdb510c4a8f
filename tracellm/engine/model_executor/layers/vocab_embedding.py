"""Input embedding and output layer: token ids to vectors, and vectors to a score for each token id.

With tensor parallelism each worker has the rows of some token ids. The embedding sums the workers' vectors, of which
one is not zero; the output layer joins their scores.

vLLM: vllm/model_executor/layers/vocab_parallel_embedding.py, with the same names. Left out: padding to a multiple
of 64.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracellm.engine.distributed.communication_op import (
    tensor_model_parallel_all_gather,
    tensor_model_parallel_all_reduce,
)
from tracellm.engine.distributed.parallel_state import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from tracellm.engine.model_executor.layers.linear import Partition
from tracellm.engine.model_executor.ops import current_ops

__all__ = ["Embedding", "ParallelLMHead", "VocabParallelEmbedding"]


class Embedding(nn.Module):
    """One vector for each index; weight [num_embeddings, embedding_dim]."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim), requires_grad=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return vectors [T, embedding_dim] for indices int [T]."""
        return F.embedding(input_ids, self.weight)


def _rows(num_embeddings: int) -> Partition:
    """Return this worker's token ids; the last worker may have fewer than the others."""
    size = -(-num_embeddings // get_tensor_model_parallel_world_size())
    start = min(get_tensor_model_parallel_rank() * size, num_embeddings)
    return Partition(start, min(size, num_embeddings - start), num_embeddings)


class _VocabParallel(nn.Module):
    """A layer with the rows of this worker's token ids. All workers have as many rows, some of which may be unused."""

    partition_dim = 0

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.partitions = (_rows(num_embeddings),)
        rows = -(-num_embeddings // get_tensor_model_parallel_world_size())
        self.weight = nn.Parameter(torch.zeros(rows, embedding_dim), requires_grad=False)


class VocabParallelEmbedding(_VocabParallel):
    """One vector for each token id; weight [ids of this worker, embedding_dim]."""

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return vectors [T, embedding_dim] for ids int [T]."""
        start, size, total = self.partitions[0]
        if size == total:
            return F.embedding(input_ids, self.weight)
        is_own = (input_ids >= start) & (input_ids < start + size)
        vectors = F.embedding((input_ids - start) * is_own, self.weight) * is_own[:, None]
        return tensor_model_parallel_all_reduce(vectors)


class ParallelLMHead(_VocabParallel):
    """Output layer: one score (logit) for each token id of the vocabulary."""

    def __init__(self, num_embeddings: int, embedding_dim: int, tied_to: VocabParallelEmbedding | None) -> None:
        """Create the layer; `tied_to`: input embedding to share the weight with, if config.json ties them."""
        super().__init__(num_embeddings if tied_to is None else 0, embedding_dim)
        self.ops = current_ops()
        if tied_to is not None:
            self.weight, self.partitions = tied_to.weight, tied_to.partitions

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return logits [N, vocabulary] for hidden states [N, embedding_dim], the same on each worker."""
        _, size, total = self.partitions[0]
        logits = self.ops.linear(hidden_states, self.weight, None)
        return logits if size == total else tensor_model_parallel_all_gather(logits)[:, :total]
