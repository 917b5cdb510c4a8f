"""The requests of a step, as the pooler gets them.

In a request's life: each step of its prompt, in `GPUModelRunner._pool`.

vLLM: vllm/v1/pool/metadata.py. Left out: token ids, for step pooling.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tracellm.engine.pool.pooling_params import PoolingParams

__all__ = ["PoolingCursor", "PoolingMetadata"]


@dataclass
class PoolingCursor:
    """Tokens of each of the R requests among the T tokens of a step."""

    first_token_indices_gpu: Tensor
    """int64 [R], on the device."""
    last_token_indices_gpu: Tensor
    """int64 [R], on the device."""
    prompt_lens_cpu: Tensor
    """int64 [R]."""
    num_scheduled_tokens_cpu: Tensor
    """int64 [R]."""

    def is_partial_prefill(self, rows: list[int]) -> bool:
        """Return whether the step computes only a part of the prompt of one of these requests."""
        return not torch.equal(self.prompt_lens_cpu[rows], self.num_scheduled_tokens_cpu[rows])


@dataclass
class PoolingMetadata:
    """Parameters and tokens of the R requests of a step."""

    prompt_lens: Tensor
    """int64 [R], on the host."""
    pooling_params: list[PoolingParams]
    pooling_cursor: PoolingCursor | None = None
    """Set by `build_pooling_cursor`."""

    def build_pooling_cursor(self, num_scheduled_tokens: list[int], device: torch.device) -> None:
        """Set the cursor for a step with this number of tokens of each request."""
        num_scheduled = torch.tensor(num_scheduled_tokens)
        ends = num_scheduled.cumsum(0)
        self.pooling_cursor = PoolingCursor(
            first_token_indices_gpu=(ends - num_scheduled).to(device),
            last_token_indices_gpu=(ends - 1).to(device),
            prompt_lens_cpu=self.prompt_lens,
            num_scheduled_tokens_cpu=num_scheduled,
        )
