"""The scheduler: before every step it decides who computes how many tokens, and into which KV blocks.

`EngineCore.step_fn` calls `schedule`, lets the workers execute what it returned, and hands their samples to
`update_from_output`. There are no phases: a request has `num_tokens` tokens, of which `num_computed_tokens` are
computed, and every step lets the second number catch up with the first. A prompt in one go, a prompt in chunks, a
single decoded token and a request resumed after a preemption are all the same to it. How requests come and go is in
requests.py.

vLLM: vllm/v1/core/sched/scheduler.py.
"""

from collections.abc import Set
from typing import cast

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheBlocks
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.output import CachedRequestData, GrammarOutput, NewRequestData, SchedulerOutput
from tracellm.engine.core.sched.reasons import HeldCode, HeldReason
from tracellm.engine.core.sched.request_queue import SchedulingPolicy, create_request_queue
from tracellm.engine.core.sched.requests import SchedulerRequests
from tracellm.engine.core.sched.step import Step
from tracellm.engine.core.sched.utils import check_stop, make_failed_output
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.ipc.messages import EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["Scheduler"]


class Scheduler(SchedulerRequests):
    """Continuous batching over a paged KV cache.

    Running requests come first, in the order in which they began; what is left of the step's token budget begins
    waiting ones. When a running request finds no free block, the last one in line is preempted: it loses its blocks,
    goes back to the front of the waiting queue and is computed anew later. In a step that preempted, nobody new begins.

    vLLM: vllm/v1/core/sched/scheduler.py::Scheduler. Left out: speculative decoding, encoder inputs, LoRA, KV
    connectors, pipeline parallelism. Added: the reasons; requests that end by an error. For asynchronous scheduling see
    `AsyncScheduler`.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        kv_cache_config: KVCacheConfig,
        structured_output_manager: StructuredOutputManager,
        log_stats: bool = False,
    ) -> None:
        super().__init__(vllm_config, kv_cache_config, log_stats)
        self.structured_output_manager = structured_output_manager
        self.scheduler_config = vllm_config.scheduler_config
        self.max_num_running_reqs = self.scheduler_config.max_num_seqs
        self.max_num_scheduled_tokens = self.scheduler_config.max_num_batched_tokens
        self.max_model_len = vllm_config.model_config.max_model_len
        self.prev_step_scheduled_req_ids: Set[str] = frozenset()

    # -- before the step ----------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. All that it decides counts as computed from now on (`_update_after_schedule`)."""
        step = Step(self.max_num_scheduled_tokens)
        self._schedule_running(step)
        if not step.preempted_reqs:
            self._schedule_waiting(step)
        elif len(self.waiting) > len(step.preempted_reqs):
            step.waiting_reason = HeldReason.behind(step.preempted_reqs[-1].request_id, HeldCode.PREEMPTED)

        scheduler_output = SchedulerOutput(
            scheduled_new_reqs=[
                NewRequestData.from_request(request, step.new_blocks[request.request_id].get_block_ids())
                for request in step.new_reqs
            ],
            scheduled_cached_reqs=self._make_cached_request_data(step.running_reqs, step.resumed_reqs, step.new_blocks),
            num_scheduled_tokens=step.num_scheduled_tokens,
            total_num_scheduled_tokens=sum(step.num_scheduled_tokens.values()),
            num_common_prefix_blocks=cast("list[int]", self._get_num_common_prefix_blocks),
            finished_req_ids=self.finished_req_ids,
            not_scheduled=step.not_scheduled,
            waiting_reason=step.waiting_reason,
        )
        self._update_after_schedule(scheduler_output)
        return scheduler_output

    def _schedule_running(self, step: Step) -> None:
        """Let the running requests go on, preempting from the end of the line when blocks run out."""
        index = 0
        while index < len(self.running) and step.token_budget > 0:
            request = self.running[index]
            wanted = self._get_num_wanted_tokens(request)
            if wanted == 0:  # it has all tokens it may get, or waits for one
                index += 1
                continue
            num_new_tokens = 1 if wanted == 1 else step.limit(request, wanted, self._chunk(wanted))
            num_preempted = len(step.preempted_reqs)
            new_blocks = self.kv_cache_manager.allocate_slots(request, num_new_tokens)
            while new_blocks is None and self._preempt(step, request, num_new_tokens) is not request:
                new_blocks = self.kv_cache_manager.allocate_slots(request, num_new_tokens)
            if new_blocks is None:
                break  # it preempted itself
            if len(step.preempted_reqs) > num_preempted:
                index = self.running.index(request)  # by priority, one before it may have gone
            index += 1
            step.running_reqs.append(request)
            step.new_blocks[request.request_id] = new_blocks
            step.num_scheduled_tokens[request.request_id] = num_new_tokens
            step.token_budget -= num_new_tokens

        for request in self.running[index:]:
            if wanted := self._get_num_wanted_tokens(request):
                step.not_scheduled[request.request_id] = (
                    HeldReason.behind(step.preempted_reqs[-1].request_id, HeldCode.PREEMPTED)
                    if step.token_budget
                    else step.no_budget(wanted)
                )

    def _get_num_wanted_tokens(self, request: Request) -> int:
        """How many tokens a running request could compute now."""
        return request.num_tokens - request.num_computed_tokens

    def _chunk(self, wanted: int) -> int:
        return min(wanted, self.scheduler_config.long_prefill_token_threshold or wanted)

    def _preempt(self, step: Step, request: Request, num_new_tokens: int) -> Request:
        """Take the blocks of the last request in line, for `request`, which may be that last one itself."""
        if self.policy is SchedulingPolicy.PRIORITY:
            preempted = max(self.running, key=lambda r: (r.priority, r.arrival_time))
            self.running.remove(preempted)
            if preempted in step.running_reqs:  # scheduled a moment ago: undo that
                step.running_reqs.remove(preempted)
                del step.new_blocks[preempted.request_id]
                step.token_budget += step.num_scheduled_tokens.pop(preempted.request_id)
                self.kv_cache_manager.forget_uncomputed(preempted)
        else:
            preempted = self.running.pop()

        step.not_scheduled[preempted.request_id] = HeldReason.preempted(
            by=request.request_id,
            needed=self.kv_cache_manager.get_num_blocks_to_allocate(request, num_new_tokens),
            free=self.kv_cache_manager.block_pool.get_num_free_blocks(),
        )
        self.kv_cache_manager.free(preempted)
        preempted.status = RequestStatus.PREEMPTED
        preempted.num_computed_tokens = 0
        preempted.num_preemptions += 1
        if self.log_stats:
            preempted.record_event(EngineCoreEventType.PREEMPTED, step.timestamp)
        self.waiting.prepend_request(preempted)
        step.preempted_reqs.append(preempted)
        return preempted

    def _schedule_waiting(self, step: Step) -> None:
        """Begin (or resume) waiting requests, in the order of the queue, as long as there is room for the first.

        Some are passed over: as in vLLM, those passed over in one step come back in reverse order.
        """
        skipped = create_request_queue(self.policy)
        while self.waiting and step.token_budget > 0 and len(self.running) < self.max_num_running_reqs:
            request = self.waiting.peek_request()
            if request.status is RequestStatus.WAITING_FOR_FSM:
                assert request.structured_output_request is not None
                try:
                    grammar = request.structured_output_request.grammar
                except Exception as error:  # of the compilation, whatever it is; vLLM's engine core dies of it
                    self._fail_request(self.waiting.pop_request(), f"Request {request.request_id!r}: {error}")
                    continue
                if grammar is None:
                    kind, _ = request.structured_output_request.structured_output_key
                    step.not_scheduled[request.request_id] = HeldReason.grammar(kind.value)
                    skipped.prepend_request(self.waiting.pop_request())
                    continue
                request.status = RequestStatus.WAITING
            computed_blocks, num_computed_tokens = self.kv_cache_manager.get_computed_blocks(request)
            wanted = request.num_tokens - num_computed_tokens
            if not self.scheduler_config.enable_chunked_prefill and self._chunk(wanted) > step.token_budget:
                # The prompt must be computed in one go: let shorter ones pass.
                step.not_scheduled[request.request_id] = HeldReason.token_budget(
                    self.max_num_scheduled_tokens, step.token_budget, wanted, given=0
                )
                skipped.prepend_request(self.waiting.pop_request())
                continue
            num_new_tokens = step.limit(request, wanted, self._chunk(wanted))
            new_blocks = self.kv_cache_manager.allocate_slots(
                request, num_new_tokens, num_computed_tokens, computed_blocks
            )
            if new_blocks is None:
                step.not_scheduled[request.request_id] = HeldReason.no_free_blocks(
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
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = num_computed_tokens
            if request.num_cached_tokens < 0:
                request.num_cached_tokens = num_computed_tokens
        if self.waiting:
            step.explain_waiting(self.waiting, self.max_num_running_reqs, len(self.running))
        if skipped:
            self.waiting.prepend_requests(skipped)

    def _get_num_common_prefix_blocks(self) -> list[int]:
        """See `SchedulerOutput.num_common_prefix_blocks`."""
        if not self.running:
            return [0] * self.kv_cache_manager.num_kv_cache_groups
        return self.kv_cache_manager.get_num_common_prefix_blocks(self.running[0].request_id)

    def _make_cached_request_data(
        self, running_reqs: list[Request], resumed_reqs: list[Request], new_blocks: dict[str, KVCacheBlocks]
    ) -> CachedRequestData:
        """What the model runner does not know yet of the requests that it has seen before."""
        reqs = running_reqs + resumed_reqs
        num_output_tokens = [request.num_output_tokens + request.num_output_placeholders for request in reqs]
        prev_step_scheduled_req_ids = self.prev_step_scheduled_req_ids

        def all_token_ids() -> dict[str, list[int]]:
            return {
                request.request_id: list(request.all_token_ids[: request.num_prompt_tokens + num_outputs])
                for request, num_outputs in zip(reqs, num_output_tokens, strict=True)
                if request.request_id not in prev_step_scheduled_req_ids
            }

        return CachedRequestData(
            req_ids=[request.request_id for request in reqs],
            resumed_req_ids={request.request_id for request in resumed_reqs},
            new_token_ids=[],
            all_token_ids=cast("dict[str, list[int]]", all_token_ids),
            new_block_ids=[new_blocks[request.request_id].get_block_ids(allow_none=True) for request in reqs],
            num_computed_tokens=[request.num_computed_tokens for request in reqs],
            num_output_tokens=num_output_tokens,
        )

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Count the scheduled tokens as computed, so that the next chunk could be scheduled at once."""
        for request_id, num_tokens in scheduler_output.num_scheduled_tokens.items():
            self.requests[request_id].num_computed_tokens += num_tokens
        self.prev_step_scheduled_req_ids = scheduler_output.num_scheduled_tokens.keys()
        self.finished_req_ids = set()  # a new set: the old one is in the output

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        """Which tokens the constrained requests of this step may be given; None when there are none."""
        request_ids = [name for name in scheduler_output.num_scheduled_tokens if name in self.constrained_req_ids]
        if not request_ids:
            return None
        return GrammarOutput(request_ids, self.structured_output_manager.grammar_bitmask(self.requests, request_ids))

    # -- after the step -----------------------------------------------------------------------------------------------

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Give every request its sampled tokens, end those that are done, and report to the clients.

        Args:
            scheduler_output: what was scheduled.
            model_runner_output: `sampled_token_ids[i]` is empty for a request whose prompt is not computed to its end
            yet.

        Returns:
            By client, the requests that got tokens, or failed; and for one of the clients the statistics, if they are
            kept.
        """
        outputs: dict[int, list[EngineCoreOutput]] = {}
        stopped_reqs: set[Request] = set()
        errors, logprobs = model_runner_output.errors, model_runner_output.logprobs
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None:
                continue  # aborted while the step ran
            if request_id in errors:
                self._fail_request(request, errors[request_id])
                stopped_reqs.add(request)
                continue
            index = model_runner_output.req_id_to_index[request_id]
            new_token_ids = model_runner_output.sampled_token_ids[index]
            if not new_token_ids:
                continue
            new_token_ids, stopped = self._update_request_with_output(request, new_token_ids)
            if stopped:
                self._free_request(request)
                stopped_reqs.add(request)
            if self.structured_output_manager.should_advance(request):
                self.structured_output_manager.accept_tokens(request, new_token_ids)
            new_logprobs = None
            if logprobs is not None and request.sampling_params.logprobs is not None:
                new_logprobs = logprobs.slice(index, index + 1)
            outputs.setdefault(request.client_index, []).append(
                EngineCoreOutput(
                    request_id=request_id,
                    new_token_ids=new_token_ids,
                    new_logprobs=new_logprobs,
                    new_prompt_logprobs_tensors=model_runner_output.prompt_logprobs_dict.get(request_id),
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
        engine_core_outputs = {index: EngineCoreOutputs(outputs=of_client) for index, of_client in outputs.items()}
        if (stats := self.make_stats()) is not None:  # to one client, even when there is nothing else to say
            first = next(iter(engine_core_outputs), 0)
            engine_core_outputs.setdefault(first, EngineCoreOutputs()).scheduler_stats = stats
        return engine_core_outputs

    def _update_request_with_output(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """Append the tokens up to the one that ends the request. Returns these tokens, and whether it ended."""
        for count, token_id in enumerate(new_token_ids, start=1):
            request.append_output_token_ids(token_id)
            if check_stop(request, self.max_model_len):
                return new_token_ids[:count], True
        return new_token_ids, False
