"""One engine step: what was scheduled and why, what came out. Everything a replay of the run needs is on the step's
span.

`Scheduler.schedule` knows most of it, the model runner the sampled tokens (runner.py), `Scheduler.update_from_output`
who has ended; each gives what it knows to the enclosing `EngineCore.step_fn`, whose span is completed here.
"""

import json
from collections.abc import Callable
from math import isfinite
from operator import attrgetter
from typing import Any

import msgspec

from tracellm.probes.catalog.helpers import argument, inherited, plain
from tracellm.probes.catalog.runner import sampled_attributes, to_millionths
from tracellm.probes.catalog.sampling import Likeliest, processors_of, token_ids
from tracellm.probes.ledger import Ledger
from tracellm.probes.spec import Entry
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.ranges import format_ranges

__all__ = ["ENTRIES"]

STEP = "EngineCore.step_fn"
_REQUEST_ID = attrgetter("request_id")

# -- the scheduler ----------------------------------------------------------------------------------------------------


def _capture_schedule(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    scheduler, cached = args[0], output.scheduled_cached_reqs
    requests, pool = scheduler.requests, scheduler.kv_cache_manager.block_pool
    return {
        "tokens": list(output.num_scheduled_tokens.items()),
        "new": [
            (new.req_id, new.num_computed_tokens, [group.copy() for group in new.block_ids])
            for new in output.scheduled_new_reqs
        ],
        "cached": [
            (
                request_id,
                computed,
                [group.copy() for group in blocks] if blocks else (),
                has_generated > 0 and requests[request_id].num_tokens - computed == 1,
            )
            for request_id, computed, blocks, has_generated in zip(
                cached.req_ids,
                cached.num_computed_tokens,
                cached.new_block_ids,
                cached.num_output_tokens,
                strict=True,
            )
        ],
        "resumed": list(cached.resumed_req_ids),
        "held": [
            (request_id, reason.code._value_, reason.numbers) for request_id, reason in output.not_scheduled.items()
        ],
        "released": sorted(output.finished_req_ids),
        "running": [*map(_REQUEST_ID, scheduler.running)],
        "waiting": [*map(_REQUEST_ID, scheduler.waiting)],
        "budget": scheduler.max_num_scheduled_tokens,
        "block_size": scheduler.kv_cache_manager.coordinator.block_size,
        "free": pool.free_block_queue.num_free_blocks,
        "total": pool.num_gpu_blocks - 1,
    }


def _schedule(facts: Any) -> dict[str, Any]:
    num_tokens = sum(tokens for _, tokens in facts["tokens"])
    return {names.RESULT: f"{len(facts['tokens'])} requests, {num_tokens} tokens"}


def _give_schedule(facts: Any) -> dict[str, Any]:
    return {"scheduled": facts}


# -- its conclusions --------------------------------------------------------------------------------------------------


def _capture_update(args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    model_output = argument(args, kwargs, 2, "model_runner_output")
    ended = [
        (output.request_id, str(output.finish_reason))
        for of_client in outputs.values()
        for output in of_client.outputs
        if output.finish_reason is not None
    ]
    return ended, tuple(model_output.logits_shape)


def _update(facts: Any) -> dict[str, Any]:
    ended, _ = facts
    return {names.RESULT: f"{len(ended)} finished"}


def _give_update(facts: Any) -> dict[str, Any]:
    ended, logits_shape = facts
    return {"ended": ended, "logits_shape": logits_shape}


# -- the step ---------------------------------------------------------------------------------------------------------


def _capture_step(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return None if result is None else result[1]


def _step(executed: Any) -> dict[str, Any]:
    return {names.RESULT: f"model_executed={executed}"}


def _complete_step(ledger: Ledger, span: Span, executed: Any, given: dict[str, Any]) -> None:
    ledger.steps += 1
    told = span.attributes
    told[names.STEP_INDEX] = ledger.steps
    if executed is False or "schedules" not in ledger.untold:
        told[names.STEP_KIND] = "empty"
    if "scheduled" in given:
        _tell_schedule(told, given["scheduled"])
        if "endings" not in ledger.untold:
            _tell_released(told, ledger)
        ledger.took_part(told[names.STEP_REQUESTS], span)
    if "ended" in given:
        told[names.STEP_FINISHED] = [request_id for request_id, _ in given["ended"]]
        told[names.STEP_FINISH_REASONS] = [reason for _, reason in given["ended"]]
        for request_id in told[names.STEP_FINISHED]:
            ledger.computed(request_id)
            ledger.queued.discard(request_id)
    if "logits_shape" in given:
        told[names.STEP_LOGITS] = list(given["logits_shape"])
    if "sampled" in given:
        told.update(sampled_attributes(given["sampled"], ledger.decode))
        told[names.STEP_CANDIDATES] = _candidates(given["sampled"]["likeliest"], ledger.decode)
        _tell_drawn(told, given["sampled"], given.get("drawn"), ledger)


def _tell_schedule(told: dict[str, Any], facts: dict[str, Any]) -> None:
    rows = {row[0]: row for row in facts["cached"]}
    rows |= {request_id: (request_id, computed, blocks, False) for request_id, computed, blocks in facts["new"]}
    new, resumed = [request_id for request_id, *_ in facts["new"]], facts["resumed"]
    from_cache = {*new, *resumed}
    ids = [request_id for request_id, _ in facts["tokens"]]
    scheduled = [rows[request_id] for request_id in ids]
    # Of a request that begins, what is computed came from the prefix cache, in whole blocks at the front of its table.
    hits = [computed if request_id in from_cache else 0 for request_id, computed, _, _ in scheduled]
    tables = [
        _blocks(blocks, hit // facts["block_size"]) if blocks else _NO_BLOCKS
        for (_, _, blocks, _), hit in zip(scheduled, hits, strict=True)
    ]
    phases = ["decode" if decodes else "prefill" for *_, decodes in scheduled]
    told[names.STEP_KIND] = "mixed" if len(set(phases)) > 1 else phases[0] if phases else "empty"
    told[names.STEP_REQUESTS] = ids
    told[names.STEP_TOKENS] = [tokens for _, tokens in facts["tokens"]]
    told[names.STEP_COMPUTED] = [computed for _, computed, _, _ in scheduled]
    told[names.STEP_PHASES] = phases
    told[names.STEP_CACHED] = hits
    told[names.STEP_CACHED_BLOCKS] = [cached for cached, _ in tables]
    told[names.STEP_NEW_BLOCKS] = [new for _, new in tables]
    told[names.STEP_NEW] = new
    told[names.STEP_RESUMED] = [request_id for request_id in ids if request_id in resumed]
    told[names.STEP_PREEMPTED] = [request_id for request_id, code, _ in facts["held"] if code == "preempted"]
    told[names.STEP_RELEASED] = facts["released"]
    told[names.STEP_RUNNING] = facts["running"]
    told[names.STEP_WAITING] = facts["waiting"]
    told[names.STEP_HELD] = [request_id for request_id, _, _ in facts["held"]]
    told[names.STEP_HELD_REASONS] = [code for _, code, _ in facts["held"]]
    told[names.STEP_HELD_DETAILS] = [_details(numbers) for _, _, numbers in facts["held"]]
    told[names.STEP_BUDGET] = facts["budget"]
    told[names.STEP_BLOCKS_FREE] = facts["free"]
    told[names.STEP_BLOCKS_TOTAL] = facts["total"]


def _details(numbers: dict[str, int | str]) -> str:
    """As `HeldReason.details` has it."""
    return " ".join(f"{name}={value}" for name, value in numbers.items())


def _tell_released(told: dict[str, Any], ledger: Ledger) -> None:
    """Of the requests that the workers are to forget, those that no step ended were aborted."""
    told[names.STEP_ABORTED] = [request_id for request_id in told[names.STEP_RELEASED] if request_id in ledger.queued]
    ledger.queued.difference_update(told[names.STEP_ABORTED])
    ledger.queued.update(told[names.STEP_RUNNING], told[names.STEP_WAITING])


def _blocks(groups: list[list[int]], num_cached: int) -> tuple[str, str]:
    """Of the tables of all groups of layers, the blocks that came from the cache and those that are new.

    Block 0 stands where a group needs none: a sliding window has left those tokens behind.
    """
    if not any(groups):  # as most times
        return _NO_BLOCKS
    cached = (block for table in groups for block in table[:num_cached] if block)
    new = (block for table in groups for block in table[num_cached:] if block)
    return format_ranges(cached), format_ranges(new)


_NO_BLOCKS = "", ""


def _tell_drawn(told: dict[str, Any], sampled: dict[str, Any], drawn: Any, ledger: Ledger) -> None:
    """What acted on the logits before the tokens were drawn, and what that left; nothing where nothing acted."""
    if not any(map(any, (asked for asked, _ in sampled["asked"]))):
        return
    processors = [processors_of(*one) for one in sampled["asked"]]
    if not any(processors):
        return
    told[names.STEP_PROCESSORS] = [" ".join(of_row) for of_row in processors]
    if drawn is None:
        return
    rows, chances, candidates = sampled["rows"], sampled["probabilities"], told[names.STEP_CANDIDATES]
    told[names.STEP_LEFT] = [drawn["left"][row] for row in rows]
    if "probabilities" in drawn:  # else the model's own were not changed
        chances = [drawn["probabilities"][row] for row in rows]
        of_all = _candidates(drawn["likeliest"], ledger.decode)
        candidates = [of_all[row] for row in rows]
    told[names.STEP_DRAWN_PROBS] = to_millionths(chances)
    told[names.STEP_DRAWN_CANDIDATES] = candidates


def _candidates(likeliest: Likeliest, decode: Callable[[int], str] | None) -> list[str]:
    """Of each row the likeliest tokens as JSON, `[[token id, text, probability], ...]`."""
    ends = iter(_ends([probability for row in likeliest[0] for probability in row]))
    begins = _begins_with(decode).__getitem__
    return [f"[{','.join([begins(id) + next(ends) for id in row])}]" for row in token_ids(likeliest)]


def _ends(probabilities: list[float]) -> list[str]:
    """The JSON that candidates with these probabilities end with; what is no number is told as such."""
    told = to_millionths(probabilities)
    if all(map(isfinite, told)):  # all at once takes a third of the time
        return [f"{number}]" for number in msgspec.json.encode(told)[1:-1].decode().split(",")]
    return [f"{json.dumps(number)}]" for number in told]


class _Begins(dict[int, str]):
    """The JSON that a candidate begins with, by its token id."""

    def __init__(self, decode: Callable[[int], str] | None) -> None:
        super().__init__()
        self.decode = decode

    def __missing__(self, token_id: int) -> str:
        if len(self) >= _MOST_TOKENS:
            self.clear()
        text = "" if self.decode is None else self.decode(token_id)
        try:
            begin = msgspec.json.encode([token_id, text]).decode()[:-1]
        except ValueError:  # half of a surrogate pair
            begin = json.dumps([token_id, text])[:-1]
        self[token_id] = f"{begin},"
        return self[token_id]


_MOST_TOKENS = 32_768
_begins = _Begins(None)


def _begins_with(decode: Callable[[int], str] | None) -> _Begins:
    """Those of the tokenizer that was last in use; mostly there is but one."""
    global _begins
    if _begins.decode is not decode:
        _begins = _Begins(decode)
    return _begins


_SCHEDULER = "tracellm.engine.sched.scheduler:Scheduler"

ENTRIES = (
    *plain("step", "llm_engine", "LLMEngine.step"),
    *plain("step", "core_client", "InprocClient.get_output"),
    Entry(
        "tracellm.engine.core:EngineCore.step_fn",
        "step",
        _capture_step,
        _step,
        observe=_complete_step,
        span_name=STEP,
        also="step",
    ),
    *inherited("step", "core", "EngineCore._schedule", "EngineCore._execute_model"),
    *inherited("step", "core", "EngineCore._process_model_outputs", "EngineCore.post_step"),
    Entry(_SCHEDULER + ".schedule", "step", _capture_schedule, _schedule, gives=_give_schedule, gives_to=STEP),
    *plain("layer", "sched.scheduler", "Scheduler._make_cached_request_data", "Scheduler._update_after_schedule"),
    *plain("step", "sched.scheduler", "Scheduler.get_grammar_bitmask"),
    *plain("step", "structured_output.manager", "StructuredOutputManager.grammar_bitmask"),
    *plain("layer", "structured_output.manager", "StructuredOutputManager.accept_tokens"),
    *plain("step", "structured_output.manager", "StructuredOutputManager.wait_for_a_grammar"),
    Entry(_SCHEDULER + ".update_from_output", "step", _capture_update, _update, gives=_give_update, gives_to=STEP),
    *plain("step", "kv_cache.kv_cache_manager", "KVCacheManager.get_computed_blocks", "KVCacheManager.allocate_slots"),
    *plain("step", "kv_cache.kv_cache_manager", "KVCacheManager.free"),
    *plain("layer", "kv_cache.kv_cache_coordinator", "*KVCacheCoordinator.find_longest_cache_hit"),
    *plain("layer", "kv_cache.kv_cache_coordinator", "KVCacheCoordinator.allocate_new_blocks"),
    *plain("layer", "kv_cache.kv_cache_coordinator", "KVCacheCoordinator.cache_blocks"),
    *plain("layer", "kv_cache.kv_cache_coordinator", "KVCacheCoordinator.remove_skipped_blocks"),
    *plain("layer", "kv_cache.single_type_kv_cache_manager", "*Manager.find_longest_cache_hit"),
    *plain("layer", "kv_cache.block_pool", "BlockPool.get_new_blocks", "BlockPool.touch", "BlockPool.free_blocks"),
    *plain("layer", "kv_cache.block_pool", "BlockPool.cache_full_blocks"),
    *plain("layer", "sched.scheduler", "Scheduler._update_request_with_output", "check_stop"),
    *plain("step", "executor.uniproc_executor", "UniProcExecutor.execute_model", "UniProcExecutor.sample_tokens"),
    Entry("tracellm.engine.worker.worker_base:WorkerWrapperBase.execute_model", "step", lifeline="Worker"),
    *plain("step", "worker.gpu_worker", "Worker.execute_model", "Worker.sample_tokens"),
    *plain("layer", "detokenizer", "FastIncrementalDetokenizer.update"),
    *plain("layer", "logprobs", "LogprobsProcessor.update_from_output"),
    *plain("layer", "request_state", "RequestState.make_request_output"),
)
