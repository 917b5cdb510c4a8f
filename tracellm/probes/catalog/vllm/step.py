"""One step of a vLLM's engine core: what was scheduled, and what became of it.

Its span is called as our engine's is, `EngineCore.step_fn`: in a vLLM that is a name for one of two methods. `step`
schedules a batch and waits for it. `step_with_batch_queue` schedules one and waits for the one before, so that a step's
span tells whom it scheduled, and what came of those whom the step before had scheduled.

vLLM: vllm/v1/engine/core.py, vllm/v1/core/.
"""

from typing import Any

from tracellm.probes.catalog.engine import step as ours
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.vllm.entries import heirs, like, plain
from tracellm.probes.catalog.vllm.schedule import allocation, capture_allocation, capture_schedule, give_schedule
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "STEPS"]

STEPS = ("EngineCore.step", "EngineCore.step_with_batch_queue")
"""The functions that are a step, and are told what goes on in it."""


def _capture_update(args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    """Who has ended, who got which tokens, and the shape of the logits where each got one at most: a row for each."""
    scheduled = argument(args, kwargs, 1, "scheduler_output").num_scheduled_tokens
    model_output = argument(args, kwargs, 2, "model_runner_output")
    sampled, row_of = model_output.sampled_token_ids or (), model_output.req_id_to_index.get
    none = len(sampled)
    tokens = [
        (request_id, *map(int, sampled[row])) for request_id in scheduled if (row := row_of(request_id, none)) < none
    ]
    of_one_each = all(len(one) <= 1 for one in sampled)
    shape = (none, args[0].vllm_config.model_config.get_vocab_size()) if none and of_one_each else ()
    return ours.ended_of(outputs), ours.made_at(outputs), tokens, shape


def _give_update(facts: Any) -> dict[str, Any]:
    ended, made, tokens, shape = facts
    return {"ended": ended, "outputs_made": made, "tokens": tokens, "shape": shape}


def _complete_step(tracker: RequestTracker, span: Span, executed: Any, given: dict[str, Any]) -> None:
    """As for our engine; of tokens whose sampling was not recorded in this process only which they are."""
    given.setdefault("logits_shape", given.get("shape", ()))
    _STEP.observe(tracker, span, executed, given)  # type: ignore[misc]
    if "sampled" not in given and "tokens" in given:
        got = [(request_id, token) for request_id, *tokens in given["tokens"] for token in tokens]
        span.attributes[names.STEP_SAMPLED] = [request_id for request_id, _ in got]
        span.attributes[names.STEP_SAMPLED_IDS] = [token for _, token in got]
        if tracker.decode is not None:
            span.attributes[names.STEP_SAMPLED_TEXTS] = [tracker.decode(token) for _, token in got]


_CORE, _SCHEDULER = "v1.engine.core", "v1.core.sched.scheduler"
_MANAGER, _COORDINATOR = "v1.core.kv_cache_manager", "v1.core.kv_cache_coordinator"
_STEP = like(ours.ENTRIES, "EngineCore.step_fn", f"{_CORE}:EngineCore.step")
_IN_STEP = {"gives_to": STEPS, "lifeline": "Scheduler"}  # of an AsyncScheduler too

ENTRIES = (
    *plain("step", "v1.engine.llm_engine", "LLMEngine.step"),
    *plain("step", "v1.engine.core_client", "InprocClient.get_output"),
    like([_STEP], "EngineCore.step", f"{_CORE}:EngineCore.step", observe=_complete_step),
    like(
        [_STEP],
        "EngineCore.step",
        f"{_CORE}:EngineCore.step_with_batch_queue",
        observe=_complete_step,
        also="step_with_batch_queue",
    ),
    *plain("step", _CORE, "EngineCore.post_step", span_name="EngineCore.post_step"),
    like(
        ours.ENTRIES,
        "Scheduler.schedule",
        f"{_SCHEDULER}:Scheduler.schedule",
        capture=capture_schedule,
        gives=give_schedule,
        span_name="Scheduler.schedule",
        **_IN_STEP,
    ),
    *heirs("layer", _SCHEDULER, "Scheduler._make_cached_request_data"),
    *heirs("layer", _SCHEDULER, "Scheduler._update_after_schedule"),
    *heirs("step", _SCHEDULER, "Scheduler.get_grammar_bitmask"),
    *plain("step", "v1.structured_output", "StructuredOutputManager.grammar_bitmask"),
    like(
        ours.ENTRIES,
        "Scheduler.update_from_output",
        f"{_SCHEDULER}:Scheduler.update_from_output",
        capture=_capture_update,
        gives=_give_update,
        span_name="Scheduler.update_from_output",
        **_IN_STEP,
    ),
    *plain("step", _MANAGER, "KVCacheManager.get_computed_blocks", "KVCacheManager.free"),
    *plain(
        "step",
        _MANAGER,
        "KVCacheManager.allocate_slots",
        capture=capture_allocation,
        attributes=allocation,
        in_short=True,
    ),
    *plain("layer", _COORDINATOR, "*KVCacheCoordinator*.find_longest_cache_hit"),
    *plain("layer", _COORDINATOR, "KVCacheCoordinator.allocate_new_blocks", "KVCacheCoordinator.cache_blocks"),
    *plain("layer", _COORDINATOR, "KVCacheCoordinator.remove_skipped_blocks"),
    *plain("layer", "v1.core.single_type_kv_cache_manager", "*Manager.find_longest_cache_hit"),
    *plain("layer", "v1.core.block_pool", "BlockPool.get_new_blocks", "BlockPool.touch", "BlockPool.free_blocks"),
    *plain("layer", "v1.core.block_pool", "BlockPool.cache_full_blocks"),
    *heirs("layer", _SCHEDULER, "Scheduler._update_request_with_output"),
    *plain("layer", _SCHEDULER, "check_stop"),
    *plain("step", "v1.executor.uniproc_executor", "UniProcExecutor.execute_model", "UniProcExecutor.sample_tokens"),
    *plain("step", "v1.executor.multiproc_executor", "MultiprocExecutor.execute_model"),
    *plain("step", "v1.executor.multiproc_executor", "MultiprocExecutor.sample_tokens"),
    *plain("step", "v1.worker.worker_base", "WorkerWrapperBase.execute_model", lifeline="Worker"),
    *heirs("step", "v1.worker.gpu_worker", "Worker.execute_model", "Worker.sample_tokens"),
    *plain("layer", "v1.engine.detokenizer", "BaseIncrementalDetokenizer.update"),
    *plain("layer", "v1.engine.logprobs", "LogprobsProcessor.update_from_output"),
    *plain("layer", "v1.engine.output_processor", "RequestState.make_request_output"),
)
