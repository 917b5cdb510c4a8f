"""`n > 1`: one request that the engine core sees as n, its children, each with an id, a seed and an output of its own.

`LLMEngine.add_request` makes a `ParentRequest` and fans it out; the children share their prompt's KV blocks through the
prefix cache, if it is on. The `OutputProcessor` brings their outputs together again.

vLLM: vllm/v1/engine/parallel_sampling.py::ParentRequest. There the children get the parameters as the user wrote them,
without what the `Processor` completes (bad words, further end-of-sequence tokens, `max_tokens=None`): a fault of 0.11.1
that later versions mended, and that is not followed here.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from tracellm.engine.frontend.outputs import CompletionOutput
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from tracellm.engine.metrics.stats import IterationStats

__all__ = ["ParentRequest"]


class ParentRequest:
    """What the children of a request have in common, and what they have brought so far."""

    def __init__(self, request_id: str, sampling_params: SamplingParams) -> None:
        """`sampling_params` are the completed ones; their `n` is the number of children."""
        self.request_id = request_id
        self.sampling_params = sampling_params
        self.child_requests: set[str] = set()
        """The ids of the children that have not finished."""
        self.output_aggregator: dict[int, CompletionOutput] = {}
        """Under `FINAL_ONLY`, the finished outputs by index."""
        self.max_num_generation_tokens = 0
        """Of the finished children, the most tokens that one has generated."""

    @property
    def n(self) -> int:
        """How many children it has, or had."""
        return self.sampling_params.n

    def get_child_info(self, index: int) -> tuple[str, SamplingParams]:
        """The id and the parameters of the child at `index` (0 to n - 1): `2_7` is the third child of request `7`.

        Its seed is the parent's plus the index; without one all children draw from the engine's generator.
        """
        child_id = f"{index}_{self.request_id}"
        self.child_requests.add(child_id)
        child_params = copy(self.sampling_params)
        child_params.n = 1
        if child_params.seed is not None:
            child_params.seed += index
        return child_id, child_params

    def get_outputs(
        self, child_request_id: str, completion_output: CompletionOutput
    ) -> tuple[str, list[CompletionOutput], bool]:
        """Take a child's output.

        Returns:
            The parent's id; what its caller gets to see now; and whether all children have finished. Under `FINAL_ONLY`
            there is nothing to see until they have, then the outputs of all by index; else this output alone, unless
            the child had finished before.
        """
        outputs = [completion_output]
        if completion_output.finished():
            if child_request_id not in self.child_requests:
                outputs = []
            self.child_requests.discard(child_request_id)
        finished = not self.child_requests
        if self.sampling_params.output_kind is RequestOutputKind.FINAL_ONLY:
            self.output_aggregator[completion_output.index] = completion_output
            outputs = [self.output_aggregator[index] for index in sorted(self.output_aggregator)] if finished else []
        return self.request_id, outputs, finished

    @staticmethod
    def observe_finished_request(
        parent_req: ParentRequest | None, iteration_stats: IterationStats, num_generation_tokens: int
    ) -> None:
        """A request has finished: count it when it is nobody's child, or the last of `parent_req`'s."""
        if parent_req is not None:
            num_generation_tokens = max(parent_req.max_num_generation_tokens, num_generation_tokens)
            parent_req.max_num_generation_tokens = num_generation_tokens
        if parent_req is None or not parent_req.child_requests:
            iteration_stats.max_num_generation_tokens_iter.append(num_generation_tokens)
            iteration_stats.n_params_iter.append(1 if parent_req is None else parent_req.n)
