"""The scheduler's part for images and sounds: which items of a prompt are encoded in a step.

The tokens that stand for an item can be computed once the item is encoded. So a request whose next tokens reach an item
gets the item encoded in the same step, if the step's encoder budget and the encoder cache have room for it. Otherwise
the request gets only the tokens before the item, or none. An item is encoded whole, even if its tokens are computed in
several chunks.

vLLM: these methods of vllm/v1/core/sched/scheduler.py::Scheduler. Left out: encoder-decoder models, connectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracellm.engine.core.encoder_cache_manager import EncoderCacheManager, compute_encoder_budget
from tracellm.engine.core.sched.reasons import CutShort, NotScheduledReason

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.core.request import Request
    from tracellm.engine.core.sched.scheduler import _Step

__all__ = ["EncoderInputScheduler"]


class EncoderInputScheduler:
    """Base class of `Scheduler`."""

    requests: dict[str, Request]

    def __init__(self, vllm_config: VllmConfig) -> None:
        self.scheduler_config = vllm_config.scheduler_config
        self.max_num_encoder_input_tokens, encoder_cache_size = compute_encoder_budget(
            vllm_config.model_config, self.scheduler_config
        )
        """Tokens of items that a step can encode."""
        self.encoder_cache_manager = EncoderCacheManager(encoder_cache_size)
        self.max_num_tokens_per_mm_item = min(self.max_num_encoder_input_tokens, encoder_cache_size)

    def _try_schedule_encoder_inputs(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int, encoder_compute_budget: int
    ) -> tuple[list[int], int, int, CutShort | NotScheduledReason | None]:
        """Find the items to encode for a request's next tokens, and the number of tokens that can then be computed.

        Args:
            request: the request.
            num_computed_tokens: its computed tokens, cached ones included.
            num_new_tokens: the tokens that it would get in this step.
            encoder_compute_budget: tokens of items that the step can still encode.

        Returns:
            The indices of the items, the number of tokens, the rest of the budget, and the reason why there are fewer
            tokens. (vLLM has the items of a connector in place of the reason.)
        """
        manager = self.encoder_cache_manager
        input_ids: list[int] = []
        identifiers: set[str] = set()
        num_tokens_to_schedule = 0
        end_of_step = num_computed_tokens + num_new_tokens
        for input_id, feature in enumerate(request.mm_features):
            start, num_tokens = feature.mm_position.offset, feature.mm_position.length
            if start >= end_of_step:
                break
            if start + num_tokens <= num_computed_tokens or feature.identifier in identifiers:
                continue
            if manager.check_and_update_cache(request, input_id):
                continue
            begins_later, ends_later = num_computed_tokens < start, end_of_step < start + num_tokens
            is_cut = self.scheduler_config.disable_chunked_mm_input and begins_later and ends_later
            if is_cut or not manager.can_allocate(request, input_id, encoder_compute_budget, num_tokens_to_schedule):
                # No token is left if the prefix cache has the first ones of an item that must be encoded for the rest.
                num_new_tokens = max(start - num_computed_tokens, 0)
                reason = CutShort if num_new_tokens else NotScheduledReason
                if is_cut:
                    limit = reason.chunked_mm_input(input_id, num_tokens, left=end_of_step - start)
                elif num_tokens > encoder_compute_budget:
                    limit = reason.encoder_budget(
                        input_id, num_tokens, self.max_num_encoder_input_tokens, left=encoder_compute_budget
                    )
                else:
                    free = manager.num_freeable_slots - num_tokens_to_schedule
                    limit = reason.encoder_cache(input_id, num_tokens, manager.cache_size, free)
                return input_ids, num_new_tokens, encoder_compute_budget, limit
            num_tokens_to_schedule += num_tokens
            encoder_compute_budget -= num_tokens
            identifiers.add(feature.identifier)
            input_ids.append(input_id)
        return input_ids, num_new_tokens, encoder_compute_budget, None

    def _limit_to_encoded(self, step: _Step, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Return how many of the tokens a request can get, with regard to its items; if none, set the reason."""
        budget = self.max_num_encoder_input_tokens - step.num_encoder_tokens
        input_ids, num_new_tokens, budget, limit = self._try_schedule_encoder_inputs(
            request, num_computed_tokens, num_new_tokens, budget
        )
        step.encoder_inputs = input_ids, self.max_num_encoder_input_tokens - budget, limit
        if isinstance(limit, NotScheduledReason):
            step.not_scheduled[request.request_id] = limit
        return num_new_tokens

    def _add_encoder_inputs(self, step: _Step, request: Request) -> None:
        """Schedule the items that `_limit_to_encoded` has found, as the request was scheduled."""
        input_ids, num_encoder_tokens, limit = step.encoder_inputs
        if isinstance(limit, CutShort):
            step.cut_short[request.request_id] = limit
        if input_ids:
            step.scheduled_encoder_inputs[request.request_id] = input_ids
            step.num_encoder_tokens = num_encoder_tokens
            for input_id in input_ids:
                self.encoder_cache_manager.allocate(request, input_id)

    def _preempt_encoder_inputs(self, step: _Step, request: Request) -> None:
        """Undo what the step has scheduled of a preempted request, except for items that others use now.

        vLLM 0.11.1 encodes none of these items, and fails when a request uses one.
        """
        kept = []
        for input_id in step.scheduled_encoder_inputs.pop(request.request_id, ()):
            if self.encoder_cache_manager.undo_allocate(request, input_id):
                step.num_encoder_tokens -= request.get_num_encoder_tokens(input_id)
            else:
                kept.append(input_id)
        if kept:
            step.scheduled_encoder_inputs[request.request_id] = kept
        self.encoder_cache_manager.free(request)

    def _free_all_encoder_inputs(self) -> None:
        """Free the items of all requests, after a step without tokens; those still needed are found in the next one.

        A waiting request can hold an item whose space a running one needs, and lack the blocks that this one has. vLLM
        0.11.1 then schedules nothing any more.
        """
        request_ids = set().union(*self.encoder_cache_manager.cached.values())
        for request_id in sorted(request_ids):
            self.encoder_cache_manager.free(self.requests[request_id])

    def _free_encoder_inputs(self, request: Request) -> None:
        """Free the items of a request whose tokens are all computed: the KV cache has what they contributed."""
        for input_id in self.encoder_cache_manager.get_cached_input_ids(request):
            position = request.mm_features[input_id].mm_position
            if position.offset + position.length <= request.num_computed_tokens:
                self.encoder_cache_manager.free_encoder_input(request, input_id)
