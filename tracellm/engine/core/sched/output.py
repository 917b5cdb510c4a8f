"""The scheduler's decision for one step, as the workers receive it.

The data of a request is sent in full once, when it is first scheduled. Later steps send only what changed, because the
model runner keeps the rest.

vLLM: vllm/v1/core/sched/output.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.reasons import CutShort, NotScheduledReason
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CachedRequestData", "GrammarOutput", "NewRequestData", "SchedulerOutput"]


@dataclass(slots=True)
class NewRequestData:
    """A request that is scheduled for the first time.

    vLLM: vllm/v1/core/sched/output.py::NewRequestData. Left out: LoRA, prompt embeddings.
    """

    req_id: str
    prompt_token_ids: list[int]
    mm_features: list[MultiModalFeatureSpec]
    """Images and sounds of the prompt, in its order."""
    sampling_params: SamplingParams | None
    """None for pooling."""
    block_ids: tuple[list[int], ...]
    """All its blocks, one list per KV cache group."""
    num_computed_tokens: int
    """Tokens found in the prefix cache."""
    pooling_params: PoolingParams | None = None
    """None for generation."""

    @classmethod
    def from_request(cls, request: Request, block_ids: tuple[list[int], ...]) -> NewRequestData:
        """Collect what the model runner needs of `request`."""
        return cls(
            req_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            mm_features=request.mm_features,
            sampling_params=request.sampling_params,
            block_ids=block_ids,
            num_computed_tokens=request.num_computed_tokens,
            pooling_params=request.pooling_params,
        )


@dataclass(slots=True)
class CachedRequestData:
    """Scheduled requests whose data the model runner has; the lists run parallel to `req_ids`.

    vLLM: vllm/v1/core/sched/output.py::CachedRequestData.
    """

    req_ids: list[str]
    resumed_req_ids: set[str]
    """Requests resumed after a preemption: their `new_block_ids` replace their former blocks."""
    new_token_ids: list[list[int]]
    """With pipeline parallelism the tokens to compute, because only the last stage has those that it sampled; else
    empty."""
    copy_token_ids: Callable[[], dict[str, list[int]]]
    """Makes `all_token_ids`."""
    new_block_ids: list[tuple[list[int], ...] | None]
    """Blocks to append, one list per KV cache group, or None."""
    num_computed_tokens: list[int]
    """Tokens computed before this step."""
    num_output_tokens: list[int]
    """Tokens generated before this step."""

    @property
    def num_reqs(self) -> int:
        """Number of requests."""
        return len(self.req_ids)

    @property
    def all_token_ids(self) -> dict[str, list[int]]:
        """Prompt and generated tokens of each request that was not in the previous step.

        Copied when read: our model runner keeps the tokens, so they are not sent to other processes.
        """
        return self.copy_token_ids()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduce(self, copy_token_ids=dict)


@dataclass(slots=True)
class SchedulerOutput:
    """One step: the requests that run, with their tokens and blocks, and the reasons for all others.

    vLLM: vllm/v1/core/sched/output.py::SchedulerOutput. Left out: speculative tokens, connectors. Added:
    `not_scheduled`, `cut_short`, `waiting_reason`.
    """

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    """Tokens to compute for each scheduled request, at least 1; running requests come first."""
    total_num_scheduled_tokens: int
    count_common_prefix_blocks: Callable[[], list[int]]
    """Counts `num_common_prefix_blocks`; valid until the step's `Scheduler.update_from_output`."""
    finished_req_ids: set[str]
    """Requests that ended since the previous step; the workers drop them."""
    scheduled_encoder_inputs: dict[str, list[int]] = field(default_factory=dict)
    """Images and sounds to encode, as indices into the request's `mm_features`. A request that was preempted in this
    step can be among them, if another one uses its item."""
    free_encoder_mm_hashes: list[str] = field(default_factory=list)
    """Identifiers whose encoder outputs the workers drop, before they encode the items of this step."""
    not_scheduled: dict[str, NotScheduledReason] = field(default_factory=dict)
    """Requests that were considered and got no tokens."""
    cut_short: dict[str, CutShort] = field(default_factory=dict)
    """Scheduled requests that got fewer tokens than they could have computed."""
    waiting_reason: NotScheduledReason | None = None
    """Reason of all waiting requests that are not in `not_scheduled`, or None if there are no others."""

    @property
    def num_common_prefix_blocks(self) -> list[int]:
        """Leading blocks shared by all requests that have blocks, per KV cache group.

        For cascade attention, which no kernel here has: counted when read, as a count visits every block of a lone
        request.
        """
        return self.count_common_prefix_blocks()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduce(self, count_common_prefix_blocks=list)


def _reduce(output: Any, **constructors: type) -> tuple[Any, ...]:
    """Return what pickle sends to workers: the fields, without those that the scheduler computes when they are read."""
    values = {name: getattr(output, name) for name in output.__slots__} | constructors
    return type(output), tuple(values.values())


@dataclass(slots=True)
class GrammarOutput:
    """Tokens allowed by the grammars of the step's constrained requests.

    vLLM: vllm/v1/core/sched/output.py::GrammarOutput.
    """

    structured_output_request_ids: list[str]
    """The scheduled requests with a constraint, including those whose prompt is not complete after this step."""
    grammar_bitmask: np.ndarray
    """int32 [requests, words], one row per id: bit j of word i is 1 if token 32 * i + j is allowed."""
