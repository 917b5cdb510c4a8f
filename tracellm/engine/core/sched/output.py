"""What the scheduler decided for one step, as it is sent to the workers.

A request's data is sent in full once, when it is first scheduled; after that only what changed, since the model runner
keeps the rest.

vLLM: vllm/v1/core/sched/output.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.reasons import HeldReason
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CachedRequestData", "GrammarOutput", "NewRequestData", "SchedulerOutput"]

_T = TypeVar("_T")


def _when_read(name: str) -> Callable[[type[_T]], type[_T]]:
    """A decorator for a class with slots: its field may be given as a function, which the first look at it calls.

    For what vLLM's workers need and ours do not: it costs nothing in the steps in which nobody looks. Such a look
    comes before the step's `Scheduler.update_from_output`, after which there are other blocks.
    """

    def made(cls: type[_T]) -> type[_T]:
        slot = cls.__dict__[name]

        def look(self: _T) -> Any:
            if callable(value := slot.__get__(self)):
                slot.__set__(self, value := value())
            return value

        setattr(cls, name, property(look, slot.__set__))
        return cls

    return made


@dataclass(slots=True)
class NewRequestData:
    """A request that the model runner has not seen before.

    vLLM: vllm/v1/core/sched/output.py::NewRequestData. Left out: multimodal features, pooling, LoRA, prompt embeddings.
    """

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    block_ids: tuple[list[int], ...]
    """All its blocks, one list for each KV cache group."""
    num_computed_tokens: int
    """Tokens that the prefix cache supplied."""

    @classmethod
    def from_request(cls, request: Request, block_ids: tuple[list[int], ...]) -> NewRequestData:
        """What the runner needs to know of `request`."""
        return cls(
            req_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            sampling_params=request.sampling_params,
            block_ids=block_ids,
            num_computed_tokens=request.num_computed_tokens,
        )


@_when_read("all_token_ids")
@dataclass(slots=True)
class CachedRequestData:
    """The scheduled requests that the model runner knows already; the lists run parallel to `req_ids`.

    vLLM: vllm/v1/core/sched/output.py::CachedRequestData.
    """

    req_ids: list[str]
    resumed_req_ids: set[str]
    """Those that come back after a preemption: their `new_block_ids` replace the blocks known so far."""
    new_token_ids: list[list[int]]
    """Always empty: the model runner keeps the tokens it sampled (vLLM sends them under pipeline parallelism)."""
    all_token_ids: dict[str, list[int]]
    """For those that were not in the step before: all their tokens, prompt and generated. Made when
    read: the model runner keeps the tokens."""
    new_block_ids: list[tuple[list[int], ...] | None]
    """Blocks to append to those known (one list a group); None when there are none."""
    num_computed_tokens: list[int]
    """Tokens computed before this step."""
    num_output_tokens: list[int]
    """Tokens generated so far."""

    @property
    def num_reqs(self) -> int:
        """How many requests these are."""
        return len(self.req_ids)


@_when_read("num_common_prefix_blocks")
@dataclass(slots=True)
class SchedulerOutput:
    """One step: who computes how many tokens, into which blocks; and who does not, and why.

    vLLM: vllm/v1/core/sched/output.py::SchedulerOutput. Left out: speculative tokens, encoder inputs,
    connectors. Added: `not_scheduled`, `waiting_reason`.
    """

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    """Tokens to compute of each scheduled request, running ones first; at least 1 each."""
    total_num_scheduled_tokens: int
    num_common_prefix_blocks: list[int]
    """For each KV cache group, how many first blocks all requests that have blocks share. Counted when read: it
    is for cascade attention, which no kernel here has."""
    finished_req_ids: set[str]
    """Requests that ended since the last step: the workers forget them."""
    not_scheduled: dict[str, HeldReason]
    """Every request that was looked at and got nothing, or less than it wanted, and why."""
    waiting_reason: HeldReason | None = None
    """Why all others that wait got nothing: nobody looked at them. None where there are no others."""


@dataclass(slots=True)
class GrammarOutput:
    """Which tokens the grammars of the step's constrained requests allow.

    vLLM: vllm/v1/core/sched/output.py::GrammarOutput.
    """

    structured_output_request_ids: list[str]
    """The scheduled requests that are constrained, also those whose prompt is not complete after this step."""
    grammar_bitmask: np.ndarray
    """int32 [requests, words]: bit j of word i stands for token 32 * i + j; 1 is allowed. Row by row as the ids."""
