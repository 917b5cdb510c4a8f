"""Parallel sampling (`n > 1`): one request that runs in the engine core as n child requests.

`LLMEngine.add_request` and `AsyncLLM.add_request` make a `ParentRequest` and add its children, each with an id, a seed
and an output of its own. They share the prompt's KV cache blocks through the prefix cache. The `OutputProcessor`
combines their outputs.

vLLM: vllm/v1/engine/parallel_sampling.py::ParentRequest. In 0.11.1 children get the parameters as the user wrote them,
without the `Processor`'s additions (bad words, end-of-sequence tokens, `max_tokens`); later versions fixed that.
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
    """Shared state of a request's children, and their outputs so far."""

    def __init__(self, request_id: str, sampling_params: SamplingParams) -> None:
        """Take the sampling parameters as the `Processor` completed them; `n` is the number of children."""
        self.request_id = request_id
        self.sampling_params = sampling_params
        self.child_requests: set[str] = set()
        """Ids of the unfinished children."""
        self.output_aggregator: dict[int, CompletionOutput] = {}
        """Finished outputs by index, under `FINAL_ONLY`."""
        self.max_num_generation_tokens = 0
        """Largest number of tokens that a finished child generated."""

    @property
    def n(self) -> int:
        """Number of children."""
        return self.sampling_params.n

    def get_child_info(self, index: int) -> tuple[str, SamplingParams]:
        """Return the id and parameters of the child at `index` (0 to n - 1): `2_7` is the third child of request `7`.

        The child's seed is the parent's plus the index; without a seed all children use the engine's generator.
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
            The parent's id, the outputs to return now, and whether all children have finished. Under `FINAL_ONLY` the
            outputs are all children's, once the last has finished; otherwise this one, unless the child had finished.
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
        """Count a finished request, once for all children of `parent_req`."""
        if parent_req is not None:
            num_generation_tokens = max(parent_req.max_num_generation_tokens, num_generation_tokens)
            parent_req.max_num_generation_tokens = num_generation_tokens
        if parent_req is None or not parent_req.child_requests:
            iteration_stats.max_num_generation_tokens_iter.append(num_generation_tokens)
            iteration_stats.n_params_iter.append(1 if parent_req is None else parent_req.n)
