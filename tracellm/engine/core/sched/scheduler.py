"""The scheduler: before each step it chooses the requests to run, their tokens and their KV cache blocks.

`EngineCore.step_fn` calls `schedule`, has the workers execute the result, and passes their samples to
`update_from_output`. There is no prefill or decode phase. A request has `num_tokens` tokens, of which
`num_computed_tokens` are computed, and each step lets the second number catch up with the first. This covers whole
prompts, chunked prompts, single decoded tokens and requests resumed after a preemption.

vLLM: vllm/v1/core/sched/scheduler.py.
"""

import time
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheBlocks, KVCacheManager
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.encoder_inputs import EncoderInputScheduler
from tracellm.engine.core.sched.output import CachedRequestData, GrammarOutput, NewRequestData, SchedulerOutput
from tracellm.engine.core.sched.reasons import CutShort, NotScheduledReason, ReasonCode
from tracellm.engine.core.sched.request_queue import SchedulingPolicy, create_request_queue
from tracellm.engine.core.sched.utils import check_stop, make_failed_output
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.ipc.messages import EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs
from tracellm.engine.metrics.stats import SchedulerStats
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["Scheduler"]


@dataclass(slots=True)
class _Step:
    """The step being scheduled. In vLLM these are local variables of `Scheduler.schedule`."""

    token_budget: int
    """Tokens that can still be scheduled."""
    timestamp: float = field(default_factory=time.monotonic)
    new_reqs: list[Request] = field(default_factory=list)
    resumed_reqs: list[Request] = field(default_factory=list)
    running_reqs: list[Request] = field(default_factory=list)
    preempted_reqs: list[Request] = field(default_factory=list)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    new_blocks: dict[str, KVCacheBlocks] = field(default_factory=dict)
    """All blocks of a new or resumed request; the added blocks of a running one."""
    scheduled_encoder_inputs: dict[str, list[int]] = field(default_factory=dict)
    """Images and sounds to encode, as indices into a request's `mm_features`."""
    num_encoder_tokens: int = 0
    """Tokens of these images and sounds."""
    encoder_inputs: tuple[list[int], int, CutShort | NotScheduledReason | None] = ([], 0, None)
    """Encoder inputs of the request being scheduled, the `num_encoder_tokens` with them, and the limit reached."""
    not_scheduled: dict[str, NotScheduledReason] = field(default_factory=dict)
    cut_short: dict[str, CutShort] = field(default_factory=dict)
    waiting_reason: NotScheduledReason | None = None


class Scheduler(EncoderInputScheduler):
    """Continuous batching over a paged KV cache.

    Running requests are scheduled first, in the order in which they started. The rest of the step's token budget starts
    waiting requests. If no block is free for a running request, the last running request is preempted: it loses its
    blocks, returns to the front of the waiting queue and is recomputed later. A step that preempts starts no request.

    vLLM: vllm/v1/core/sched/scheduler.py::Scheduler. Left out: speculative decoding, LoRA, KV connectors. Added:
    reasons; requests that end by an error. Subclasses schedule steps while others run.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        kv_cache_config: KVCacheConfig,
        structured_output_manager: StructuredOutputManager,
        log_stats: bool = False,
    ) -> None:
        super().__init__(vllm_config)
        self.structured_output_manager = structured_output_manager
        self.log_stats = log_stats  # collect statistics, and record when requests are queued, scheduled, preempted
        self.max_num_running_reqs = self.scheduler_config.max_num_seqs
        self.max_num_scheduled_tokens = self.scheduler_config.max_num_batched_tokens
        self.max_model_len = vllm_config.model_config.max_model_len
        self.policy = SchedulingPolicy(self.scheduler_config.policy)
        self.requests: dict[str, Request] = {}
        """All unfinished requests, by id."""
        self.waiting = create_request_queue(self.policy)
        self.running: list[Request] = []
        self.constrained_req_ids: set[str] = set()
        """Unfinished requests with a structured output."""
        self.finished_req_ids: set[str] = set()
        """Requests that ended since the previous step; the next `SchedulerOutput` reports them to the workers."""
        self.failed_reqs: list[Request] = []
        """Requests that ended by an error since the previous step; the next outputs report them to the clients."""
        self.prev_step_scheduled_req_ids: Set[str] = frozenset()
        self.kv_cache_manager = KVCacheManager(
            kv_cache_config, vllm_config.cache_config.enable_prefix_caching, log_stats
        )

    # -- before the step ----------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Schedule the next step. Its tokens count as computed from now on (`_update_after_schedule`)."""
        step = _Step(self.max_num_scheduled_tokens)
        self._schedule_running(step)
        if not step.preempted_reqs:
            self._schedule_waiting(step)
        elif len(self.waiting) > len(step.preempted_reqs):
            step.waiting_reason = NotScheduledReason.behind(step.preempted_reqs[-1].request_id, ReasonCode.PREEMPTED)
        scheduler_output = self._make_scheduler_output(step)
        self._update_after_schedule(scheduler_output)
        return scheduler_output

    def _make_scheduler_output(self, step: _Step) -> SchedulerOutput:
        """Collect the decisions of the step, for the workers and for the reports."""
        if not step.num_scheduled_tokens:
            self._free_all_encoder_inputs()
        return SchedulerOutput(
            scheduled_new_reqs=[
                NewRequestData.from_request(r, step.new_blocks[r.request_id].get_block_ids()) for r in step.new_reqs
            ],
            scheduled_cached_reqs=self._make_cached_request_data(step),
            num_scheduled_tokens=step.num_scheduled_tokens,
            total_num_scheduled_tokens=sum(step.num_scheduled_tokens.values()),
            count_common_prefix_blocks=self._get_num_common_prefix_blocks,
            finished_req_ids=self.finished_req_ids,
            scheduled_encoder_inputs=step.scheduled_encoder_inputs,
            free_encoder_mm_hashes=self.encoder_cache_manager.get_freed_mm_hashes(),
            not_scheduled=step.not_scheduled,
            cut_short=step.cut_short,
            waiting_reason=step.waiting_reason,
        )

    def _schedule_running(self, step: _Step) -> None:
        """Schedule the running requests, preempting the last ones when blocks run out."""
        index = 0
        while index < len(self.running) and step.token_budget > 0:
            request = self.running[index]
            wanted = self._get_num_wanted_tokens(request)
            if wanted == 0:  # all its tokens are computed, or it waits for one
                index += 1
                continue
            num_new_tokens = 1 if wanted == 1 else min(self._chunk(wanted), step.token_budget)
            if request.has_encoder_inputs:
                num_new_tokens = self._limit_to_encoded(step, request, request.num_computed_tokens, num_new_tokens)
                if num_new_tokens == 0:  # the requests behind it may use the budget
                    index += 1
                    continue
            num_preempted = len(step.preempted_reqs)
            new_blocks = self.kv_cache_manager.allocate_slots(request, num_new_tokens)
            while new_blocks is None and self._preempt(step, request, num_new_tokens) is not request:
                new_blocks = self.kv_cache_manager.allocate_slots(request, num_new_tokens)
            if new_blocks is None:
                break  # it preempted itself
            if len(step.preempted_reqs) > num_preempted:
                index = self.running.index(request)  # under the priority policy, an earlier one may be gone
            index += 1
            request_id = request.request_id
            step.running_reqs.append(request)
            step.new_blocks[request_id] = new_blocks
            step.num_scheduled_tokens[request_id] = num_new_tokens
            step.token_budget -= num_new_tokens
            if num_new_tokens < wanted:
                step.cut_short[request_id] = self._cut_short(wanted, num_new_tokens)
            if request.has_encoder_inputs:
                self._add_encoder_inputs(step, request)

        for request in self.running[index:]:
            if wanted := self._get_num_wanted_tokens(request):
                step.not_scheduled[request.request_id] = (
                    NotScheduledReason.behind(step.preempted_reqs[-1].request_id, ReasonCode.PREEMPTED)
                    if step.token_budget
                    else NotScheduledReason.token_budget(self.max_num_scheduled_tokens, left=0, wanted=wanted)
                )

    def _get_num_wanted_tokens(self, request: Request) -> int:
        """Return the number of tokens, prompt and generated, that a request could compute in this step."""
        return request.num_tokens - request.num_computed_tokens

    def _chunk(self, wanted: int) -> int:
        """Return `wanted`, but at most `long_prefill_token_threshold` tokens; 0 means that there is no such limit."""
        return min(wanted, self.scheduler_config.long_prefill_token_threshold or wanted)

    def _cut_short(self, wanted: int, num_new_tokens: int) -> CutShort:
        if num_new_tokens == self.scheduler_config.long_prefill_token_threshold:
            return CutShort.chunk_threshold(num_new_tokens, wanted)
        return CutShort.token_budget(self.max_num_scheduled_tokens, wanted, num_new_tokens)

    def _preempt(self, step: _Step, request: Request, num_new_tokens: int) -> Request:
        """Free the blocks of the last running request, for `request`, which may itself be the last one."""
        if self.policy is SchedulingPolicy.PRIORITY:
            preempted = max(self.running, key=lambda r: (r.priority, r.arrival_time))
            self.running.remove(preempted)
            if preempted in step.running_reqs:  # already scheduled in this step: undo that
                step.running_reqs.remove(preempted)
                del step.new_blocks[preempted.request_id]
                step.token_budget += step.num_scheduled_tokens.pop(preempted.request_id)
                step.cut_short.pop(preempted.request_id, None)
                self.kv_cache_manager.evict_uncomputed_blocks(preempted)
        else:
            preempted = self.running.pop()

        step.not_scheduled[preempted.request_id] = NotScheduledReason.preempted(
            by=request.request_id,
            needed=self.kv_cache_manager.get_num_blocks_to_allocate(request, num_new_tokens),
            free=self.kv_cache_manager.block_pool.get_num_free_blocks(),
        )
        self.kv_cache_manager.free(preempted)
        self._preempt_encoder_inputs(step, preempted)
        preempted.status = RequestStatus.PREEMPTED
        preempted.num_computed_tokens = 0
        preempted.num_preemptions += 1
        if self.log_stats:
            preempted.record_event(EngineCoreEventType.PREEMPTED, step.timestamp)
        self.waiting.prepend_request(preempted)
        step.preempted_reqs.append(preempted)
        return preempted

    def _schedule_waiting(self, step: _Step) -> None:
        """Start or resume waiting requests in queue order, until the first one that does not fit.

        A request whose grammar is not ready is skipped, and so is a prompt that must be computed in one step and is
        longer than the budget. As in vLLM, requests skipped in one step return to the queue in reverse order.
        """
        skipped = create_request_queue(self.policy)
        while self.waiting and step.token_budget > 0 and len(self.running) < self.max_num_running_reqs:  # max_num_seqs
            request = self.waiting.peek_request()
            if request.status is RequestStatus.WAITING_FOR_FSM:
                assert request.structured_output_request is not None
                try:
                    grammar = request.structured_output_request.grammar
                except Exception as error:  # any error of the compilation; it ends vLLM's engine core
                    self._fail_request(self.waiting.pop_request(), f"Request {request.request_id!r}: {error}")
                    continue
                if grammar is None:
                    kind, _ = request.structured_output_request.structured_output_key
                    step.not_scheduled[request.request_id] = NotScheduledReason.grammar(kind.value)
                    skipped.prepend_request(self.waiting.pop_request())
                    continue
                request.status = RequestStatus.WAITING
            computed_blocks, num_computed_tokens = self.kv_cache_manager.get_computed_blocks(request)
            wanted = self._get_num_wanted_tokens(request) - num_computed_tokens
            if wanted <= 0:  # preempted while its token is computed
                skipped.prepend_request(self.waiting.pop_request())
                continue
            if not self.scheduler_config.enable_chunked_prefill and self._chunk(wanted) > step.token_budget:
                step.not_scheduled[request.request_id] = NotScheduledReason.token_budget(
                    self.max_num_scheduled_tokens, step.token_budget, wanted
                )
                skipped.prepend_request(self.waiting.pop_request())
                continue
            num_new_tokens = min(self._chunk(wanted), step.token_budget)
            if request.has_encoder_inputs:
                num_new_tokens = self._limit_to_encoded(step, request, num_computed_tokens, num_new_tokens)
                if num_new_tokens == 0:
                    break
            new_blocks = self.kv_cache_manager.allocate_slots(
                request, num_new_tokens, num_computed_tokens, computed_blocks
            )
            if new_blocks is None:
                step.not_scheduled[request.request_id] = NotScheduledReason.no_free_blocks(
                    needed=self.kv_cache_manager.get_num_blocks_to_allocate(request, num_new_tokens, computed_blocks),
                    free=self.kv_cache_manager.block_pool.get_num_free_blocks(),
                )
                break

            self.waiting.pop_request()
            self.running.append(request)
            if self.log_stats:
                request.record_event(EngineCoreEventType.SCHEDULED, step.timestamp)
            (step.new_reqs if request.status is RequestStatus.WAITING else step.resumed_reqs).append(request)
            step.new_blocks[request.request_id] = self.kv_cache_manager.get_blocks(request.request_id)
            step.num_scheduled_tokens[request.request_id] = num_new_tokens
            step.token_budget -= num_new_tokens
            if num_new_tokens < wanted:
                step.cut_short[request.request_id] = self._cut_short(wanted, num_new_tokens)
            if request.has_encoder_inputs:
                self._add_encoder_inputs(step, request)
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = num_computed_tokens
            if request.num_cached_tokens < 0:
                request.num_cached_tokens = num_computed_tokens
        if self.waiting:
            self._explain_waiting(step)
        if skipped:
            self.waiting.prepend_requests(skipped)

    def _explain_waiting(self, step: _Step) -> None:
        """Set the reason of the waiting request that stopped the scheduling, and the one of all requests behind it."""
        first = self.waiting.peek_request()
        if step.token_budget == 0:
            cause = ReasonCode.TOKEN_BUDGET
            step.not_scheduled[first.request_id] = NotScheduledReason.token_budget(
                self.max_num_scheduled_tokens, left=0, wanted=first.num_tokens - first.num_computed_tokens
            )
        elif len(self.running) < self.max_num_running_reqs:
            reason = step.not_scheduled.get(first.request_id)  # of the encoder, or of missing blocks
            cause = ReasonCode.NO_FREE_BLOCKS if reason is None else reason.code
        else:
            step.waiting_reason = NotScheduledReason.max_num_seqs(self.max_num_running_reqs, len(self.running))
            return
        if len(self.waiting) > 1:
            step.waiting_reason = NotScheduledReason.behind(first.request_id, cause)

    def _get_num_common_prefix_blocks(self) -> list[int]:
        """See `SchedulerOutput.num_common_prefix_blocks`."""
        if not self.running:
            return [0] * self.kv_cache_manager.num_kv_cache_groups
        return self.kv_cache_manager.get_num_common_prefix_blocks(self.running[0].request_id)

    def _make_cached_request_data(self, step: _Step) -> CachedRequestData:
        """Collect what changed in the requests that the model runner has: the running ones, then the resumed ones."""
        reqs = step.running_reqs + step.resumed_reqs
        num_output_tokens = [request.num_output_tokens + request.num_output_placeholders for request in reqs]
        prev_step_scheduled_req_ids = self.prev_step_scheduled_req_ids

        def copy_token_ids() -> dict[str, list[int]]:
            return {
                request.request_id: list(request.all_token_ids[: request.num_prompt_tokens + num_outputs])
                for request, num_outputs in zip(reqs, num_output_tokens, strict=True)
                if request.request_id not in prev_step_scheduled_req_ids
            }

        return CachedRequestData(
            req_ids=[request.request_id for request in reqs],
            resumed_req_ids={request.request_id for request in step.resumed_reqs},
            new_token_ids=[],
            copy_token_ids=copy_token_ids,
            new_block_ids=[step.new_blocks[request.request_id].get_block_ids(allow_none=True) for request in reqs],
            num_computed_tokens=[request.num_computed_tokens for request in reqs],
            num_output_tokens=num_output_tokens,
        )

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Count the scheduled tokens as computed, so that the next step can be scheduled at once."""
        for request_id, num_tokens in scheduler_output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            request.num_computed_tokens += num_tokens
            if request.has_encoder_inputs:
                self._free_encoder_inputs(request)
        self.prev_step_scheduled_req_ids = scheduler_output.num_scheduled_tokens.keys()
        self.finished_req_ids = set()  # a new set, because the output holds the old one

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        """Return the allowed tokens of the step's constrained requests, or None if it has none."""
        request_ids = [name for name in scheduler_output.num_scheduled_tokens if name in self.constrained_req_ids]
        if not request_ids:
            return None
        return GrammarOutput(request_ids, self.structured_output_manager.grammar_bitmask(self.requests, request_ids))

    # -- after the step -----------------------------------------------------------------------------------------------

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Append the sampled tokens, end finished requests, and build the outputs for the clients.

        Args:
            scheduler_output: the step.
            model_runner_output: its results. `sampled_token_ids[i]` is empty if the prompt is not fully computed.

        Returns:
            By client index, the outputs of requests with a token, a result or an error; for one client statistics, too.
        """
        outputs: dict[int, list[EngineCoreOutput]] = {}
        stopped_reqs: set[Request] = set()
        errors, pooler_outputs = model_runner_output.errors, model_runner_output.pooler_output
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None:
                continue  # aborted while the step ran
            if error := errors.get(request_id) or self.structured_output_manager.get_error(request):
                self._fail_request(request, error)
                stopped_reqs.add(request)
                continue
            index = model_runner_output.req_id_to_index[request_id]
            new_token_ids = model_runner_output.sampled_token_ids[index]
            pooler_output = pooler_outputs[index] if pooler_outputs else None
            if not new_token_ids and pooler_output is None:
                continue
            new_token_ids, stopped = self._update_request_with_output(request, new_token_ids)
            if pooler_output is not None:
                stopped = check_stop(request, self.max_model_len, pooler_output)
            if stopped:
                self._free_request(request)
                stopped_reqs.add(request)
            if self.structured_output_manager.should_advance(request):
                self.structured_output_manager.accept_tokens(request, new_token_ids)
            outputs.setdefault(request.client_index, []).append(
                EngineCoreOutput(
                    request_id=request_id,
                    new_token_ids=new_token_ids,
                    new_logprobs=model_runner_output.get_logprobs(index, request.sampling_params),
                    new_prompt_logprobs_tensors=model_runner_output.prompt_logprobs_dict.get(request_id),
                    pooling_output=pooler_output,
                    finish_reason=request.get_finished_reason() if stopped else None,
                    stop_reason=request.stop_reason,
                    events=request.take_events(),
                    trace_headers=request.trace_headers,
                    num_cached_tokens=request.num_cached_tokens,
                )
            )
        if stopped_reqs:
            self.running = [request for request in self.running if request not in stopped_reqs]
        for request in self.failed_reqs:
            outputs.setdefault(request.client_index, []).append(make_failed_output(request))
        self.failed_reqs.clear()
        engine_core_outputs = {index: EngineCoreOutputs(outputs=items) for index, items in outputs.items()}
        if (stats := self.make_stats()) is not None:  # for one client, even without other outputs
            client_index = next(iter(engine_core_outputs), 0)
            engine_core_outputs.setdefault(client_index, EngineCoreOutputs()).scheduler_stats = stats
        return engine_core_outputs

    def _update_request_with_output(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """Append tokens up to the one that ends the request. Return these tokens, and whether it ended."""
        for count, token_id in enumerate(new_token_ids, start=1):
            request.append_output_token_ids(token_id)
            if check_stop(request, self.max_model_len):
                return new_token_ids[:count], True
        return new_token_ids, False

    # -- requests: arrival, end and state -----------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Add a request to the waiting queue."""
        self.requests[request.request_id] = request
        if request.use_structured_output:
            self.constrained_req_ids.add(request.request_id)
        self.waiting.add_request(request)
        if self.log_stats:
            request.record_event(EngineCoreEventType.QUEUED)

    def finish_requests(self, request_ids: str | Iterable[str], finished_status: RequestStatus) -> None:
        """End requests from outside, for example because the client aborted them or found a stop string.

        Ids of finished and unknown requests are ignored.
        """
        assert RequestStatus.is_finished(finished_status)
        # In the given order. vLLM iterates over a set, and so frees blocks in an arbitrary order.
        ids = dict.fromkeys([request_ids] if isinstance(request_ids, str) else request_ids)
        requests = [self.requests[request_id] for request_id in ids if request_id in self.requests]
        running = {request for request in requests if request.status is RequestStatus.RUNNING}
        if running:
            self.running = [request for request in self.running if request not in running]
        if len(running) < len(requests):
            self.waiting.remove_requests(request for request in requests if request not in running)
        for request in requests:
            request.status = finished_status
            self._free_request(request)

    def _fail_request(self, request: Request, message: str) -> None:
        """End a request by an error. vLLM 0.11.1 has no such end; later versions have."""
        request.status = RequestStatus.FINISHED_ERROR
        request.stop_reason = message
        self.failed_reqs.append(request)
        self._free_request(request)

    def _free_request(self, request: Request) -> None:
        """Drop a finished request, and free its blocks."""
        assert request.is_finished()
        self.kv_cache_manager.free(request)
        self.encoder_cache_manager.free(request)
        self.finished_req_ids.add(request.request_id)
        del self.requests[request.request_id]
        self.constrained_req_ids.discard(request.request_id)

    def get_request_counts(self) -> tuple[int, int]:
        """Return the numbers of running and waiting requests."""
        return len(self.running), len(self.waiting)

    def get_num_unfinished_requests(self) -> int:
        """Return the number of running and waiting requests."""
        return len(self.running) + len(self.waiting)

    def has_unfinished_requests(self) -> bool:
        """Return whether a request is running or waiting."""
        return self.get_num_unfinished_requests() > 0

    def has_finished_requests(self) -> bool:
        """Return whether a request ended that the workers still keep."""
        return len(self.finished_req_ids) > 0

    def has_requests(self) -> bool:
        """Return whether a step has anything to do."""
        return self.has_unfinished_requests() or self.has_finished_requests()

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache and the encoder cache. Return False, and change nothing, while a block is in use."""
        if not self.kv_cache_manager.reset_prefix_cache():
            return False
        self.encoder_cache_manager.evict_all()
        return True

    def make_stats(self) -> SchedulerStats | None:
        """Return queue lengths, cache usage and prefix cache hits since the last call, or None if not collected."""
        if (prefix_cache_stats := self.kv_cache_manager.make_prefix_cache_stats()) is None:
            return None
        return SchedulerStats(
            num_running_reqs=len(self.running),
            num_waiting_reqs=len(self.waiting),
            kv_cache_usage=self.kv_cache_manager.usage,
            prefix_cache_stats=prefix_cache_stats,
        )
