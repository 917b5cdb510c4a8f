"""Poolers: one vector, or one for each token, from the hidden states of a prompt.

In a request's life: the last step of its prompt, in `GPUModelRunner._pool`. A pooling method picks or averages hidden
states (after the model's last norm), and the head cuts and normalizes the result in float32.

vLLM: vllm/model_executor/layers/pooler.py. Left out: classification, rewards, the projections of sentence-transformers.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracellm.engine.config.pooler import PoolerConfig
from tracellm.engine.pool.metadata import PoolingMetadata

__all__ = [
    "AllPool",
    "CLSPool",
    "DispatchPooler",
    "EmbeddingPoolerHead",
    "LastPool",
    "MeanPool",
    "Pooler",
    "make_embedding_pooler",
]


class PoolingMethod(nn.Module):
    """Selection of hidden states."""

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> Tensor | list[Tensor]:
        """Return a row [hidden], or rows [tokens, hidden], for each request of a step, from [T, hidden]."""
        raise NotImplementedError


class LastPool(PoolingMethod):
    """The last token's hidden state, which depends on the whole prompt."""

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> Tensor:
        """Return [R, hidden]; of an incomplete prompt, the last one so far."""
        assert metadata.pooling_cursor is not None
        return hidden_states[metadata.pooling_cursor.last_token_indices_gpu]


class CLSPool(PoolingMethod):
    """The first token's hidden state."""

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> Tensor:
        """Return [R, hidden]."""
        assert metadata.pooling_cursor is not None
        assert not metadata.pooling_cursor.is_partial_prefill(), "partial prefill not supported with CLS pooling"
        return hidden_states[metadata.pooling_cursor.first_token_indices_gpu]


class MeanPool(PoolingMethod):
    """The mean of all tokens' hidden states, in float32."""

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> Tensor:
        """Return float32 [R, hidden]. vLLM subtracts cumulative sums, whose rounding errors grow with the step."""
        assert metadata.pooling_cursor is not None
        assert not metadata.pooling_cursor.is_partial_prefill(), "partial prefill not supported with MEAN pooling"
        lengths = metadata.pooling_cursor.num_scheduled_tokens_cpu.to(hidden_states.device)
        return torch.segment_reduce(hidden_states.float(), "mean", lengths=lengths, axis=0)


class AllPool(PoolingMethod):
    """Every token's hidden state."""

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> list[Tensor]:
        """Return [tokens, hidden] for each request."""
        assert metadata.pooling_cursor is not None
        assert not metadata.pooling_cursor.is_partial_prefill(), "partial prefill not supported with ALL pooling"
        return list(hidden_states.split(metadata.pooling_cursor.num_scheduled_tokens_cpu.tolist()))


_METHODS: Mapping[str, type[PoolingMethod]] = {"LAST": LastPool, "CLS": CLSPool, "MEAN": MeanPool, "ALL": AllPool}


class EmbeddingPoolerHead(nn.Module):
    """Cut to `dimensions` and division by the Euclidean norm, in float32, as each request asks."""

    def forward(self, pooled: Tensor | list[Tensor], metadata: PoolingMetadata) -> list[Tensor]:
        """Return float32 [dimensions], or [tokens, dimensions], for each request."""
        params = metadata.pooling_params
        settings = {(one.dimensions, one.normalize) for one in params}
        if isinstance(pooled, Tensor) and len(settings) == 1:
            return list(self._finish(pooled, *settings.pop()))
        return [self._finish(rows, one.dimensions, one.normalize) for rows, one in zip(pooled, params, strict=True)]

    @staticmethod
    def _finish(rows: Tensor, dimensions: int | None, normalize: bool | None) -> Tensor:
        rows = rows.float()[..., :dimensions]
        return F.normalize(rows, dim=-1) if normalize else rows


class Pooler(nn.Module):
    """A pooling method and a head."""

    def __init__(self, pooling: PoolingMethod, head: EmbeddingPoolerHead) -> None:
        super().__init__()
        self.pooling = pooling
        self.head = head

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> list[Tensor]:
        """Return the result of each request of a step, from its hidden states [T, hidden]."""
        results: list[Tensor] = self.head(self.pooling(hidden_states, metadata), metadata)
        return results


class DispatchPooler(nn.Module):
    """One pooler for each task; a step's requests may have different ones."""

    def __init__(self, poolers_by_task: Mapping[str, Pooler]) -> None:
        super().__init__()
        self.poolers_by_task = nn.ModuleDict(poolers_by_task)

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> list[Tensor]:
        """Return the result of each request of a step, from its hidden states [T, hidden]."""
        tasks = [params.task for params in metadata.pooling_params]
        results = {task: self.poolers_by_task[str(task)](hidden_states, metadata) for task in set(tasks)}
        return [results[task][row] for row, task in enumerate(tasks)]


def make_embedding_pooler(pooler_config: PoolerConfig) -> DispatchPooler:
    """Return the pooler of an embedding model. `pooling_type` ALL has vectors of tokens only."""
    assert pooler_config.pooling_type is not None, "set by ModelConfig"
    poolers = {"token_embed": Pooler(AllPool(), EmbeddingPoolerHead())}
    if pooler_config.pooling_type != "ALL":
        poolers["embed"] = Pooler(_METHODS[pooler_config.pooling_type](), EmbeddingPoolerHead())
    return DispatchPooler(poolers)
