"""One engine step: what was scheduled and why, what came out. Everything a replay of the run needs is on the step's
span.

Under asynchronous scheduling (`EngineCore.step_with_batch_queue`) a step's span tells whom it scheduled and which
tokens were sampled for them; who has ended is told of those whom the step before had scheduled.

`Scheduler.schedule` knows most of it, the model runner the sampled tokens (runner.py), `Scheduler.update_from_output`
who has ended; each gives what it knows to the enclosing `EngineCore.step_fn`, whose span is completed with it
(step_span.py).
"""

from itertools import chain, islice
from operator import attrgetter
from typing import Any

from tracellm.probes.catalog.engine.step_span import complete_step
from tracellm.probes.catalog.helpers import argument, heirs, inherited, plain
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names

__all__ = ["ENTRIES", "LISTED", "cached_rows", "ended_of", "going_on", "made_at", "new_requests"]

LISTED = 100
"""How many of those who wait are told by name: in a queue of thousands the others wait for what the last of these does,
and to tell of each in every step would cost more than the step."""

STEP = "EngineCore.step_fn"
_REQUEST_ID = attrgetter("request_id")

# -- the scheduler ----------------------------------------------------------------------------------------------------


def _capture_schedule(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    scheduler, pool, behind = args[0], args[0].kv_cache_manager.block_pool, output.waiting_reason
    return {
        "tokens": output.num_scheduled_tokens.copy(),
        "new": new_requests(output),
        "cached": going_on(output, scheduler.requests),
        "resumed": list(output.scheduled_cached_reqs.resumed_req_ids),
        "held": [
            (request_id, reason.code._value_, reason.numbers)
            for request_id, reason in islice(
                chain(output.cut_short.items(), output.not_scheduled.items()), len(scheduler.running) + LISTED
            )
        ],
        "behind": behind and (behind.code._value_, behind.numbers),
        "released": sorted(output.finished_req_ids),
        "running": [*map(_REQUEST_ID, scheduler.running)],
        "waiting": [*map(_REQUEST_ID, islice(scheduler.waiting, LISTED))],
        "num_waiting": len(scheduler.waiting),
        "budget": scheduler.max_num_scheduled_tokens,
        "block_size": scheduler.kv_cache_manager.coordinator.block_size,
        "free": pool.free_block_queue.num_free_blocks,
        "total": pool.num_gpu_blocks - 1,
    }


def new_requests(output: Any) -> list[tuple[str, int, list[list[int]]]]:
    """Of a SchedulerOutput, who begins: how many tokens of it are computed, and its blocks in each group of layers."""
    return [
        (new.req_id, new.num_computed_tokens, [group.copy() for group in new.block_ids])
        for new in output.scheduled_new_reqs
    ]


Columns = tuple[list[str], list[int], list[Any], list[int], list[int]]


def going_on(output: Any, requests: Any) -> Columns:
    """Of a SchedulerOutput, who goes on: ids, tokens computed, new blocks if there are any, outputs, prompts' lengths.

    Columns, of which `cached_rows` makes rows later: there may be hundreds, and each row is another object to make.
    """
    cached = output.scheduled_cached_reqs
    return (
        cached.req_ids.copy(),
        cached.num_computed_tokens.copy(),
        [blocks and [group.copy() for group in blocks] for blocks in cached.new_block_ids],
        cached.num_output_tokens.copy(),
        [requests[request_id].num_prompt_tokens for request_id in cached.req_ids],
    )


def cached_rows(columns: Columns) -> list[tuple[str, int, Any, bool]]:
    """Of each who goes on: its id, how many tokens are computed, its new blocks, and whether it decodes."""
    return [
        (request_id, computed, blocks or (), outputs > 0 and prompt + outputs - computed <= 1)
        for request_id, computed, blocks, outputs, prompt in zip(*columns, strict=True)
    ]


def _schedule(facts: Any) -> dict[str, Any]:
    return {names.RESULT: f"{len(facts['tokens'])} requests, {sum(facts['tokens'].values())} tokens"}


def _give_schedule(facts: Any) -> dict[str, Any]:
    return {"scheduled": {**facts, "cached": cached_rows(facts["cached"]), "held": _held(facts)}}


def _held(facts: Any) -> list[tuple[str, str, dict[str, int | str]]]:
    """Who was held and why: those of whom the scheduler gives a reason, and those listed that wait behind them."""
    named = {*facts["running"], *facts["waiting"]}
    held = [one for one in facts["held"] if one[0] in named or one[1] == "preempted"]
    if facts["behind"] is None:
        return held
    told = {request_id for request_id, *_ in held}
    return [*held, *((request_id, *facts["behind"]) for request_id in facts["waiting"] if request_id not in told)]


# -- its conclusions --------------------------------------------------------------------------------------------------


def _capture_update(args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    model_output = argument(args, kwargs, 2, "model_runner_output")
    return ended_of(outputs), made_at(outputs), tuple(model_output.logits_shape)


def ended_of(outputs: Any) -> list[tuple[str, str]]:
    """Of the EngineCoreOutputs for each client, who has ended, and why."""
    return [
        (output.request_id, str(output.finish_reason))
        for of_client in outputs.values()
        for output in of_client.outputs
        if output.finish_reason is not None
    ]


def made_at(outputs: Any) -> list[float]:
    """Of the EngineCoreOutputs for each client, when they were made, by which the message of them is known."""
    return [of_client.timestamp for of_client in outputs.values()]


def _update(facts: Any) -> dict[str, Any]:
    ended, *_ = facts
    return {names.RESULT: f"{len(ended)} finished"}


def _give_update(facts: Any) -> dict[str, Any]:
    ended, made, logits_shape = facts
    return {"ended": ended, "outputs_made": made, "logits_shape": logits_shape}


# -- the step ---------------------------------------------------------------------------------------------------------


def _capture_step(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return None if result is None else result[1]


def _step(executed: Any) -> dict[str, Any]:
    return {names.RESULT: f"model_executed={executed}"}


_SCHEDULER = "tracellm.engine.core.sched.scheduler:Scheduler"

ENTRIES = (
    *plain("step", "frontend.llm_engine", "LLMEngine.step"),
    *plain("step", "ipc.core_client", "InprocClient.get_output"),
    Entry(
        "tracellm.engine.core.core:EngineCore.step_fn",
        "step",
        _capture_step,
        _step,
        observe=complete_step,
        span_name=STEP,
        also="step",
        is_step=True,
    ),
    *inherited("step", "core.core", "EngineCore._schedule", "EngineCore._execute_model"),
    *inherited("step", "core.core", "EngineCore._process_model_outputs", "EngineCore.post_step"),
    Entry(
        _SCHEDULER + ".schedule",
        "step",
        _capture_schedule,
        _schedule,
        gives=_give_schedule,
        gives_to=STEP,
        lifeline="Scheduler",  # an AsyncScheduler too, as everywhere
        span_name="Scheduler.schedule",
    ),
    *heirs("layer", "core.sched.scheduler", "Scheduler._make_cached_request_data", "Scheduler._update_after_schedule"),
    *heirs("step", "core.sched.scheduler", "Scheduler.get_grammar_bitmask"),
    *plain("step", "core.structured_output.manager", "StructuredOutputManager.grammar_bitmask"),
    *plain("layer", "core.structured_output.manager", "StructuredOutputManager.accept_tokens"),
    *plain("step", "core.structured_output.manager", "StructuredOutputManager.wait_for_a_grammar"),
    Entry(
        _SCHEDULER + ".update_from_output",
        "step",
        _capture_update,
        _update,
        gives=_give_update,
        gives_to=STEP,
        lifeline="Scheduler",
        span_name="Scheduler.update_from_output",
    ),
    *plain(
        "step", "core.kv_cache.kv_cache_manager", "KVCacheManager.get_computed_blocks", "KVCacheManager.allocate_slots"
    ),
    *plain("step", "core.kv_cache.kv_cache_manager", "KVCacheManager.free"),
    *plain("layer", "core.kv_cache.kv_cache_coordinator", "*KVCacheCoordinator.find_longest_cache_hit"),
    *plain("layer", "core.kv_cache.kv_cache_coordinator", "KVCacheCoordinator.allocate_new_blocks"),
    *plain("layer", "core.kv_cache.kv_cache_coordinator", "KVCacheCoordinator.cache_blocks"),
    *plain("layer", "core.kv_cache.kv_cache_coordinator", "KVCacheCoordinator.remove_skipped_blocks"),
    *plain("layer", "core.kv_cache.single_type_kv_cache_manager", "*Manager.find_longest_cache_hit"),
    *plain("layer", "core.kv_cache.block_pool", "BlockPool.get_new_blocks", "BlockPool.touch", "BlockPool.free_blocks"),
    *plain("layer", "core.kv_cache.block_pool", "BlockPool.cache_full_blocks"),
    *heirs("layer", "core.sched.scheduler", "Scheduler._update_request_with_output"),
    *plain("layer", "core.sched.scheduler", "check_stop"),
    *plain("step", "executor.uniproc_executor", "UniProcExecutor.execute_model", "UniProcExecutor.sample_tokens"),
    Entry(
        "tracellm.engine.worker.async_output:AsyncGPUModelRunnerOutput.get_output", "step", lifeline="GPUModelRunner"
    ),
    Entry("tracellm.engine.worker.worker_base:WorkerWrapperBase.execute_model", "step", lifeline="Worker"),
    *plain("step", "worker.gpu_worker", "Worker.execute_model", "Worker.sample_tokens"),
    *plain("layer", "frontend.detokenizer", "FastIncrementalDetokenizer.update"),
    *plain("layer", "frontend.logprobs", "LogprobsProcessor.update_from_output"),
    *plain("layer", "frontend.request_state", "RequestState.make_request_output"),
)
