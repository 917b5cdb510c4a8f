"""One engine step: the schedule with its reasons, and the sampled tokens.

The step's span has everything that a replay of the run needs.

`Scheduler.schedule`, the model runner (runner.py) and `Scheduler.update_from_output` each give their facts to the
enclosing `EngineCore.step_fn`, whose span `complete_step` completes. Under asynchronous scheduling
(`step_with_batch_queue`) a step's span has the requests that it scheduled and the tokens sampled for them; the finished
requests are of those that the previous step scheduled. If other processes sample, as with pipeline parallelism, the
tokens come with a later step, whose span names the step they are of.

vLLM: vllm/v1/engine/core.py, vllm/v1/core/.
"""

from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from tracellm.probes.catalog.engine.candidates import candidates_json
from tracellm.probes.catalog.engine.grammar import grammar_attributes
from tracellm.probes.catalog.engine.items import encoder_attributes, scheduled_items
from tracellm.probes.catalog.engine.runner import sampled_attributes, to_millionths
from tracellm.probes.catalog.entries import argument, ours_only, plain, vllm_only
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import active_processors
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.ranges import format_ranges

__all__ = [
    "ENTRIES",
    "MAX_LISTED",
    "STEP",
    "cached_rows",
    "capture_schedule",
    "capture_update",
    "complete_step",
    "continued_requests",
    "finished_requests",
    "give_schedule",
    "new_requests",
    "outputs_times",
]

MAX_LISTED = 100
"""Waiting requests listed by name. Beyond these, requests wait for the same reason as the last one listed. Listing
thousands in every step would cost more than the step."""

STEP = "EngineCore.step_fn"
_REQUEST_ID = attrgetter("request_id")

# -- the scheduler ----------------------------------------------------------------------------------------------------


def capture_schedule(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """Capture what `Scheduler.schedule` decided, and its queues and free blocks after it."""
    scheduler, pool, reason = args[0], args[0].kv_cache_manager.block_pool, output.waiting_reason
    return {
        "tokens": output.num_scheduled_tokens.copy(),
        "new": new_requests(output),
        "cached": continued_requests(output, scheduler.requests),
        "resumed": list(output.scheduled_cached_reqs.resumed_req_ids),
        "held": [
            (request_id, reason.code._value_, reason.numbers)
            for request_id, reason in islice(
                chain(output.cut_short.items(), output.not_scheduled.items()), len(scheduler.running) + MAX_LISTED
            )
        ],
        "waiting_reason": reason and (reason.code._value_, reason.numbers),
        "released": sorted(output.finished_req_ids),
        "running": [*map(_REQUEST_ID, scheduler.running)],
        "waiting": [*map(_REQUEST_ID, islice(scheduler.waiting, MAX_LISTED))],
        "num_waiting": len(scheduler.waiting),
        "budget": scheduler.max_num_scheduled_tokens,
        "block_size": scheduler.kv_cache_manager.coordinator.block_size,
        "free": pool.free_block_queue.num_free_blocks,
        "total": pool.num_gpu_blocks - 1,
        "encoder": scheduled_items(scheduler, output),
    }


def new_requests(output: Any) -> list[tuple[str, int, list[list[int]]]]:
    """Return id, computed tokens and blocks per group of layers, for the new requests of a SchedulerOutput."""
    return [
        (new.req_id, new.num_computed_tokens, [group.copy() for group in new.block_ids])
        for new in output.scheduled_new_reqs
    ]


Columns = tuple[list[str], list[int], list[Any], list[int], list[int]]


def continued_requests(output: Any, requests: Any) -> Columns:
    """Return ids, computed tokens, new blocks if any, output tokens and prompt lengths of requests that continue.

    Columns, which `cached_rows` transposes later: there may be hundreds of requests, and each row is an object to make.
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
    """Return id, computed tokens, new blocks and whether it decodes, for each request that continues."""
    return [
        (request_id, computed, blocks or (), outputs > 0 and prompt + outputs - computed <= 1)
        for request_id, computed, blocks, outputs, prompt in zip(*columns, strict=True)
    ]


def _schedule(facts: Any) -> dict[str, Any]:
    return {names.RESULT: f"{len(facts['tokens'])} requests, {sum(facts['tokens'].values())} tokens"}


def give_schedule(facts: Any) -> dict[str, Any]:
    """Return what the step's span gets of the facts of `capture_schedule`."""
    return {"scheduled": {**facts, "cached": cached_rows(facts["cached"]), "held": _held(facts)}}


def _held(facts: Any) -> list[tuple[str, str, dict[str, int | str]]]:
    """Return the listed requests that were not scheduled or got too few tokens, each with its own or the common
    reason."""
    listed = {*facts["running"], *facts["waiting"]}
    held = [row for row in facts["held"] if row[0] in listed or row[1] == "preempted"]
    if facts["waiting_reason"] is None:
        return held
    with_reason = {request_id for request_id, *_ in held}
    rest = (request_id for request_id in facts["waiting"] if request_id not in with_reason)
    return [*held, *((request_id, *facts["waiting_reason"]) for request_id in rest)]


def capture_update(args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    """Capture which requests `Scheduler.update_from_output` finished, and which messages it made."""
    model_output = argument(args, kwargs, 2, "model_runner_output")
    return {
        "ended": finished_requests(outputs),
        "outputs_made": outputs_times(outputs),
        "logits_shape": tuple(model_output.logits_shape),
    }


def finished_requests(outputs: Any) -> list[tuple[str, str]]:
    """Return id and finish reason of the finished requests, from the EngineCoreOutputs of each client.

    A request to a pooling model ends with its result: `pooled`.
    """
    return [
        (output.request_id, "pooled" if output.pooling_output is not None else str(output.finish_reason))
        for client_outputs in outputs.values()
        for output in client_outputs.outputs
        if output.finish_reason is not None
    ]


def outputs_times(outputs: Any) -> list[float]:
    """Return the timestamp of each client's EngineCoreOutputs, which identifies the message that carries them."""
    return [client_outputs.timestamp for client_outputs in outputs.values()]


# -- the step's span --------------------------------------------------------------------------------------------------


def _capture_step(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Return the number of outputs for each client, or None, and whether the model ran."""
    if result is None:
        return None
    outputs, executed = result
    return outputs and [(client, len(of_client.outputs)) for client, of_client in outputs.items()], executed


def _step_result(returned: Any) -> dict[str, Any]:
    """Return both values: `{0: 8 outputs}, model_executed=True`."""
    outputs, executed = returned or (None, None)
    counts = ", ".join(f"{client}: {count} outputs" for client, count in outputs or ())
    return {names.RESULT: f"{f'{{{counts}}}' if outputs else outputs}, model_executed={executed}"}


def complete_step(tracker: RequestTracker, span: Span, returned: Any, child_facts: dict[str, Any]) -> None:
    """Complete a step's span; `returned` is what it returned, `child_facts` what the calls within it gave."""
    executed = returned[1] if returned else None
    tracker.steps += 1
    attributes = span.attributes
    attributes[names.STEP_INDEX] = tracker.steps
    if executed is False or (executed is None and "schedules" not in tracker.left_out):
        attributes[names.STEP_KIND] = "empty"  # if the model ran, its kind follows from the schedule, or is unknown
    if "scheduled" in child_facts:
        _set_schedule(attributes, child_facts["scheduled"])
        if "endings" not in tracker.left_out:
            _set_aborted(attributes, tracker)
        tracker.link_step(attributes[names.STEP_REQUESTS], span)
    tracker.made_outputs(child_facts.get("outputs_made", ()))
    if "ended" in child_facts:
        attributes[names.STEP_FINISHED] = [request_id for request_id, _ in child_facts["ended"]]
        attributes[names.STEP_FINISH_REASONS] = [reason for _, reason in child_facts["ended"]]
        for request_id in attributes[names.STEP_FINISHED]:
            tracker.forget_remote(request_id)
            tracker.queued.discard(request_id)
    if any(child_facts.get("logits_shape", ())):
        attributes[names.STEP_LOGITS] = list(child_facts["logits_shape"])
    output_of = tracker.output_of(bool(attributes.get(names.STEP_REQUESTS)), child_facts.get("sampled"))
    if output_of != tracker.steps:
        attributes[names.STEP_OUTPUT_OF] = output_of
    if "sampled" in child_facts:
        attributes.update(sampled_attributes(child_facts["sampled"], tracker.decode))
        if "likeliest" in child_facts["sampled"]:
            attributes[names.STEP_CANDIDATES] = candidates_json(child_facts["sampled"]["likeliest"], tracker.decode)
        _set_drawn(attributes, child_facts["sampled"], child_facts.get("drawn"), tracker)
        if child_facts.get("grammar"):
            sampled = child_facts["sampled"]["requests"]
            attributes.update(grammar_attributes(child_facts["grammar"], sampled, tracker.decode))


def _set_schedule(attributes: dict[str, Any], facts: dict[str, Any]) -> None:
    rows = {row[0]: row for row in facts["cached"]}
    rows |= {request_id: (request_id, computed, blocks, False) for request_id, computed, blocks in facts["new"]}
    new, resumed = [request_id for request_id, *_ in facts["new"]], facts["resumed"]
    from_cache = {*new, *resumed}
    ids = list(facts["tokens"])
    scheduled = [rows[request_id] for request_id in ids]
    # Computed tokens of a request that begins came from the prefix cache, in whole blocks at the front of its table.
    hits = [computed if request_id in from_cache else 0 for request_id, computed, _, _ in scheduled]
    tables = [
        _split_blocks(blocks, hit // facts["block_size"]) if blocks else _NO_BLOCKS
        for (_, _, blocks, _), hit in zip(scheduled, hits, strict=True)
    ]
    phases = ["decode" if decodes else "prefill" for *_, decodes in scheduled]
    attributes[names.STEP_KIND] = "mixed" if len(set(phases)) > 1 else phases[0] if phases else "empty"
    attributes[names.STEP_REQUESTS] = ids
    attributes[names.STEP_TOKENS] = list(facts["tokens"].values())
    attributes[names.STEP_COMPUTED] = [computed for _, computed, _, _ in scheduled]
    attributes[names.STEP_PHASES] = phases
    attributes[names.STEP_CACHED] = hits
    attributes[names.STEP_CACHED_BLOCKS] = [cached for cached, _ in tables]
    attributes[names.STEP_NEW_BLOCKS] = [new for _, new in tables]
    attributes[names.STEP_NEW] = new
    attributes[names.STEP_RESUMED] = [request_id for request_id in ids if request_id in resumed]
    attributes[names.STEP_PREEMPTED] = [request_id for request_id, code, _ in facts["held"] if code == "preempted"]
    attributes[names.STEP_RELEASED] = facts["released"]
    attributes[names.STEP_RUNNING] = facts["running"]
    attributes[names.STEP_WAITING] = facts["waiting"]
    if facts["num_waiting"] > len(facts["waiting"]):
        attributes[names.STEP_NUM_WAITING] = facts["num_waiting"]
    attributes[names.STEP_HELD] = [request_id for request_id, _, _ in facts["held"]]
    attributes[names.STEP_HELD_REASONS] = [code for _, code, _ in facts["held"]]
    attributes[names.STEP_HELD_DETAILS] = [_details(numbers) for _, _, numbers in facts["held"]]
    attributes[names.STEP_BUDGET] = facts["budget"]
    attributes[names.STEP_BLOCKS_FREE] = facts["free"]
    attributes[names.STEP_BLOCKS_TOTAL] = facts["total"]
    if facts["encoder"] is not None:
        attributes.update(encoder_attributes(facts["encoder"]))


def _details(numbers: dict[str, int | str]) -> str:
    """Return the numbers as `name=value name=value`."""
    return " ".join(f"{name}={value}" for name, value in numbers.items())


def _set_aborted(attributes: dict[str, Any], tracker: RequestTracker) -> None:
    """Record as aborted the requests that workers are to release though no step finished them."""
    aborted = [request_id for request_id in attributes[names.STEP_RELEASED] if request_id in tracker.queued]
    attributes[names.STEP_ABORTED] = aborted
    tracker.queued.difference_update(aborted)
    tracker.queued.update(attributes[names.STEP_RUNNING], attributes[names.STEP_WAITING])


def _split_blocks(groups: list[list[int]], num_cached: int) -> tuple[str, str]:
    """Return the cached and the new blocks in the tables of all groups of layers, as ranges.

    Block 0 stands for tokens that a sliding window has left behind.
    """
    if not any(groups):  # the usual case
        return _NO_BLOCKS
    cached = (block for table in groups for block in table[:num_cached] if block)
    new = (block for table in groups for block in table[num_cached:] if block)
    return format_ranges(cached), format_ranges(new)


_NO_BLOCKS = "", ""


def _set_drawn(attributes: dict[str, Any], sampled: dict[str, Any], drawn: Any, tracker: RequestTracker) -> None:
    """Record the processors that changed the logits before sampling, and the tokens they left, if any did."""
    if not any(map(any, (options for options, _ in sampled["options"]))):  # the live feed does this during the run
        return
    processors = [active_processors(*row) for row in sampled["options"]]
    if not any(processors):
        return
    attributes[names.STEP_PROCESSORS] = [" ".join(row) for row in processors]
    if drawn is None or "likeliest" not in sampled:
        return
    rows, chances, candidates = sampled["rows"], sampled["probabilities"], attributes[names.STEP_CANDIDATES]
    attributes[names.STEP_LEFT] = [drawn["left"][row] for row in rows]
    if "probabilities" in drawn:  # otherwise the model's own were not changed
        chances = [drawn["probabilities"][row] for row in rows]
        all_candidates = candidates_json(drawn["likeliest"], tracker.decode)
        candidates = [all_candidates[row] for row in rows]
    attributes[names.STEP_DRAWN_PROBS] = to_millionths(chances)
    attributes[names.STEP_DRAWN_CANDIDATES] = candidates


def _capture_output(late: bool, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture requests and new tokens of a ModelRunnerOutput from another process; None if there is none yet."""
    if not getattr(result, "req_ids", ()):
        return None
    rows = zip(result.req_ids, result.sampled_token_ids, strict=True)
    pairs = [(request_id, token) for request_id, tokens in rows for token in tokens]
    requests, tokens = [request for request, _ in pairs], [token for _, token in pairs]
    return {"requests": requests, "tokens": tokens, "options": [], "late": late}


def _output(facts: Any) -> dict[str, Any]:
    return {} if facts is None else {names.RESULT: f"{len(facts['tokens'])} tokens"}


def _give_output(facts: Any) -> dict[str, Any]:
    return {} if facts is None else {"sampled": facts}


def _output_of(late: bool) -> dict[str, Any]:
    """Return the settings of a probe whose call returns a step's output; a `late` one is of an earlier step."""
    capture = partial(_capture_output, late)
    return {"capture": capture, "attributes": _output, "gives": _give_output, "gives_to": STEP}


_FUTURE = "executor.distributed_executor:FutureWrapper"
_SCHEDULER = "core.sched.scheduler:Scheduler"
_ENCODER_INPUTS = "core.sched.encoder_inputs:EncoderInputScheduler"
_COORDINATOR = "core.kv_cache.kv_cache_coordinator:KVCacheCoordinator"
_GRAMMARS = "core.structured_output.manager:StructuredOutputManager"

ENTRIES = (
    *plain("step", "frontend.llm_engine:LLMEngine", "step"),
    *plain("step", "ipc.core_client:InprocClient", "get_output"),
    *ours_only(
        "step",
        "core.core:EngineCore",
        "step_fn",
        inherited=True,
        capture=_capture_step,
        attributes=_step_result,
        observe=complete_step,
        also="step",
        is_step=True,
    ),
    *ours_only("step", "core.core:EngineCore", "_schedule", "_execute_model", "_process_model_outputs", inherited=True),
    *plain("step", "core.core:EngineCore", "post_step", inherited=True),
    *ours_only(
        "step",
        _SCHEDULER,
        "schedule",
        shown_as="Scheduler",
        capture=capture_schedule,
        attributes=_schedule,
        gives=give_schedule,
        gives_to=STEP,
    ),
    *ours_only("step", _ENCODER_INPUTS, "_try_schedule_encoder_inputs", shown_as="Scheduler"),
    *vllm_only("step", "v1.core.sched.scheduler:Scheduler", "_try_schedule_encoder_inputs", shown_as="Scheduler"),
    *plain("layer", _SCHEDULER, "_make_cached_request_data", "_update_after_schedule", shown_as="Scheduler"),
    *plain("step", _SCHEDULER, "get_grammar_bitmask", shown_as="Scheduler"),
    *plain("step", _GRAMMARS, "grammar_bitmask"),
    *ours_only("layer", _GRAMMARS, "accept_tokens"),
    *ours_only("step", _GRAMMARS, "wait_for_a_grammar"),
    *ours_only(
        "step",
        _SCHEDULER,
        "update_from_output",
        shown_as="Scheduler",
        capture=capture_update,
        attributes=lambda facts: {names.RESULT: f"{len(facts['ended'])} finished"},
        gives=dict,
        gives_to=STEP,
    ),
    *plain("step", "core.kv_cache.kv_cache_manager:KVCacheManager", "get_computed_blocks", "free"),
    *ours_only("step", "core.kv_cache.kv_cache_manager:KVCacheManager", "allocate_slots"),
    *ours_only("layer", "core.kv_cache.kv_cache_coordinator:*KVCacheCoordinator", "find_longest_cache_hit"),
    *plain("layer", _COORDINATOR, "allocate_new_blocks", "cache_blocks"),
    *plain("layer", _COORDINATOR, "remove_skipped_blocks"),
    *plain("layer", "core.kv_cache.single_type_kv_cache_manager:*Manager", "find_longest_cache_hit"),
    *plain(
        "layer", "core.kv_cache.block_pool:BlockPool", "get_new_blocks", "touch", "free_blocks", "cache_full_blocks"
    ),
    *plain("layer", _SCHEDULER, "_update_request_with_output", shown_as="Scheduler"),
    *plain("layer", "core.sched.scheduler:", "check_stop"),
    *plain("step", "executor.uniproc_executor:UniProcExecutor", "execute_model", "sample_tokens"),
    *ours_only("step", "executor.multiproc_executor:MultiprocExecutor", "execute_model"),
    *ours_only("step", "executor.multiproc_executor:MultiprocExecutor", "sample_tokens", **_output_of(late=False)),
    *ours_only("step", "executor.ray_executor:RayDistributedExecutor", "execute_model"),
    *ours_only("step", "executor.ray_executor:RayDistributedExecutor", "sample_tokens", **_output_of(late=False)),
    *ours_only("step", _FUTURE, "result", lifeline="Executor", **_output_of(late=True)),
    *ours_only("step", "executor.multiproc_executor:MultiprocExecutor", "wait_for", in_short=True),
    *ours_only("step", "executor.ray_executor:RayDistributedExecutor", "wait_for", in_short=True),
    *ours_only("step", "executor.ray_executor:RayWorkerProc", "execute_method", loop=True),
    *ours_only("step", "executor.multiproc_executor:WorkerProc", "worker_busy_loop", loop=True),
    *ours_only("step", "worker.async_output:AsyncGPUModelRunnerOutput", "get_output", lifeline="GPUModelRunner"),
    *plain("step", "worker.worker_base:WorkerWrapperBase", "execute_model", lifeline="Worker"),
    *plain("step", "worker.gpu_worker:Worker", "execute_model", "sample_tokens", shown_as="Worker"),
    *ours_only("layer", "frontend.detokenizer:FastIncrementalDetokenizer", "update"),
    *plain("layer", "frontend.logprobs:LogprobsProcessor", "update_from_output"),
    *plain("layer", "frontend.output_processor:RequestState", "make_request_output"),
)
