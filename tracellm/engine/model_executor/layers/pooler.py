"""Poolers: one vector, or one for each token, from the hidden states of a prompt.

In a request's life: the last step of its prompt, in `GPUModelRunner._pool`. A pooling method picks or averages hidden
states (after the model's last norm), and the head cuts and normalizes the result in float32.

vLLM: vllm/model_executor/layers/pooler.py. Left out: classification, rewards, the projections of sentence-transformers.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracellm.engine.config.pooler import PoolerConfig
from tracellm.engine.pool.metadata import PoolingCursor, PoolingMetadata
from tracellm.engine.pool.pooling_params import PoolingParams

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

    needs_whole_prompt: ClassVar[bool] = True
    """Whether a step must compute all tokens of a prompt."""

    def forward(self, hidden_states: Tensor, cursor: PoolingCursor) -> Tensor | Sequence[Tensor]:
        """Return a row [hidden], or rows [tokens, hidden], for each of the R requests of a step, from [T, hidden]."""
        raise NotImplementedError


class LastPool(PoolingMethod):
    """The last token's hidden state, which depends on the whole prompt."""

    needs_whole_prompt = False

    def forward(self, hidden_states: Tensor, cursor: PoolingCursor) -> Tensor:
        """Return [R, hidden]; of an incomplete prompt, the last one so far."""
        return hidden_states[cursor.last_token_indices_gpu]


class CLSPool(PoolingMethod):
    """The first token's hidden state."""

    def forward(self, hidden_states: Tensor, cursor: PoolingCursor) -> Tensor:
        """Return [R, hidden]."""
        return hidden_states[cursor.first_token_indices_gpu]


class MeanPool(PoolingMethod):
    """The mean of all tokens' hidden states, in float32."""

    def forward(self, hidden_states: Tensor, cursor: PoolingCursor) -> Tensor:
        """Return float32 [R, hidden]. vLLM subtracts cumulative sums, whose rounding errors grow with the step."""
        lengths = cursor.num_scheduled_tokens_cpu.to(hidden_states.device)
        return torch.segment_reduce(hidden_states.float(), "mean", lengths=lengths, axis=0)


class AllPool(PoolingMethod):
    """Every token's hidden state."""

    def forward(self, hidden_states: Tensor, cursor: PoolingCursor) -> Sequence[Tensor]:
        """Return [tokens, hidden] for each request."""
        return hidden_states.split(cursor.num_scheduled_tokens_cpu.tolist())


_METHODS: Mapping[str, type[PoolingMethod]] = {"LAST": LastPool, "CLS": CLSPool, "MEAN": MeanPool, "ALL": AllPool}


class EmbeddingPoolerHead(nn.Module):
    """Cut to `dimensions` and division by the Euclidean norm, in float32, as each request asks."""

    def forward(self, pooled: Tensor | Sequence[Tensor], params: list[PoolingParams]) -> list[Tensor]:
        """Return float32 [dimensions], or [tokens, dimensions], for each request."""
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

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata, rows: list[int]) -> list[Tensor]:
        """Return the results of these requests of a step, from its hidden states [T, hidden]."""
        cursor, params = metadata.pooling_cursor, metadata.pooling_params
        assert cursor is not None
        if self.pooling.needs_whole_prompt:
            assert not cursor.is_partial_prefill(rows), "partial prefill not supported with this pooling"
        pooled = self.pooling(hidden_states, cursor)
        if len(rows) < len(params):  # the others have another task
            pooled, params = [pooled[row] for row in rows], [params[row] for row in rows]
        results: list[Tensor] = self.head(pooled, params)
        return results


class DispatchPooler(nn.Module):
    """One pooler for each task; a step's requests may have different ones."""

    def __init__(self, poolers_by_task: Mapping[str, Pooler]) -> None:
        super().__init__()
        self.poolers_by_task = nn.ModuleDict(poolers_by_task)

    def forward(self, hidden_states: Tensor, metadata: PoolingMetadata) -> list[Tensor]:
        """Return the result of each request of a step, from its hidden states [T, hidden]."""
        rows_by_task: dict[str, list[int]] = {}
        for row, params in enumerate(metadata.pooling_params):
            rows_by_task.setdefault(str(params.task), []).append(row)
        results: dict[int, Tensor] = {}
        for task, rows in rows_by_task.items():
            results |= zip(rows, self.poolers_by_task[task](hidden_states, metadata, rows), strict=True)
        return [results[row] for row in range(len(results))]


def make_embedding_pooler(pooler_config: PoolerConfig) -> DispatchPooler:
    """Return the pooler of an embedding model. `pooling_type` ALL has vectors of tokens only."""
    assert pooler_config.pooling_type is not None, "set by ModelConfig"
    poolers = {"token_embed": Pooler(AllPool(), EmbeddingPoolerHead())}
    if pooler_config.pooling_type != "ALL":
        poolers["embed"] = Pooler(_METHODS[pooler_config.pooling_type](), EmbeddingPoolerHead())
    return DispatchPooler(poolers)
