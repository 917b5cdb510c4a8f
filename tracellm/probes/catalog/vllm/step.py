"""One step of a vLLM's engine core where it differs: the schedule is read from the scheduler's own objects.

The span is named `EngineCore.step_fn`, in vLLM a name for `step` or `step_with_batch_queue`. vLLM gives no reasons for
requests that it does not schedule; they are derived from the values that its loop checks: tokens and requests left,
refused blocks, the request's state. Other limits, as on adapters, show as that state or not at all.

vLLM: vllm/v1/engine/core.py, vllm/v1/core/sched/scheduler.py, vllm/v1/core/kv_cache_manager.py.
"""

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from tracellm.probes.catalog.engine import step as ours
from tracellm.probes.catalog.engine.items import scheduled_items
from tracellm.probes.catalog.entries import argument, like, vllm_only
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "STEPS", "capture_allocation", "give_schedule"]

STEPS = ("EngineCore.step", "EngineCore.step_with_batch_queue")
"""Functions that run a step, and get the facts of the calls within it."""

_QUEUES = ("kv_holding_waiting", "skipped_waiting", "waiting")
"""Queues of waiting requests, in the scheduler's order; which of them exist depends on the version."""

_READY = ("WAITING", "PREEMPTED")
"""States of requests that only wait for their turn; read as `_name_`, as `name` takes ten times as long."""

_REQUEST_ID = attrgetter("request_id")
_PRIORITY = attrgetter("priority", "arrival_time", "request_id")

Refusal = tuple[str, int | None, int]
"""Id of a request that was refused KV cache blocks, blocks needed (None if unknown), free blocks."""

_MAX_REFUSALS = 1024
"""Refusals kept of a step; `Scheduler.schedule` takes them, unless it is not recorded."""

_refusals: WeakKeyDictionary[Any, deque[Refusal]] = WeakKeyDictionary()
"""Refusals of the step being scheduled, by KVCacheManager."""

_ran: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
"""Running requests after the last step, in order, by Scheduler; those that wait now were preempted."""

# -- blocks for one request -------------------------------------------------------------------------------------------


def capture_allocation(args: tuple[Any, ...], kwargs: dict[str, Any], blocks: Any) -> Any:
    """Capture the request, its tokens and its new blocks in `KVCacheManager.allocate_slots`; keep a refusal."""
    request = args[1] if len(args) > 1 else kwargs["request"]  # not `argument`: this runs for each request and step
    num_tokens = args[2] if len(args) > 2 else kwargs["num_new_tokens"]
    if blocks is not None:
        return request.request_id, num_tokens, sum(map(len, blocks.blocks))
    manager = args[0]
    refusal = request.request_id, _blocks_needed(args, kwargs), manager.block_pool.get_num_free_blocks()
    _refusals.setdefault(manager, deque(maxlen=_MAX_REFUSALS)).append(refusal)
    return request.request_id, num_tokens, None


def _blocks_needed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return how many free blocks a refused request needed; None where its layers share no one table of blocks.

    Cached blocks that no request uses count as needed, since they are free ones too.
    """
    manager, request = args[0], argument(args, kwargs, 1, "request")
    passed = inspect.signature(type(manager).allocate_slots).bind(*args, **kwargs).arguments.get
    if len(manager.coordinator.single_type_managers) != 1:
        return None
    (table,) = manager.coordinator.single_type_managers
    tokens = request.num_computed_tokens + passed("num_new_tokens", 0) + passed("num_lookahead_tokens", 0)
    tokens += passed("num_new_computed_tokens", 0) + passed("num_external_computed_tokens", 0)
    if passed("full_sequence_must_fit", False):
        tokens = max(tokens, request.num_tokens)
    own = len(table.req_to_blocks.get(request.request_id, ()))
    cached = passed("new_computed_blocks")
    shared = sum(block.ref_cnt > 0 for block in cached.blocks[0]) if cached is not None else 0
    needed = -(-min(tokens, manager.max_model_len) // table.block_size) - own - shared
    return needed if needed > manager.block_pool.get_num_free_blocks() else None


def _allocation(facts: Any) -> dict[str, Any]:
    request_id, num_tokens, num_blocks = facts
    return {
        names.ARGUMENTS: [f"request={request_id}", f"num_new_tokens={num_tokens}"],
        names.RESULT: "None: too few blocks are free" if num_blocks is None else f"{num_blocks} new blocks",
    }


# -- the schedule -----------------------------------------------------------------------------------------------------


def _capture_schedule(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    scheduler, requests, manager = args[0], args[0].requests, args[0].kv_cache_manager
    queues = [getattr(scheduler, name, ()) for name in _QUEUES]
    waiting = [*islice(chain.from_iterable(map(_in_order, queues)), ours.MAX_LISTED)]
    running = [*map(_REQUEST_ID, scheduler.running)]
    resumed = [new.req_id for new in output.scheduled_new_reqs if requests[new.req_id].num_preemptions > 0]
    facts = {
        "tokens": output.num_scheduled_tokens.copy(),
        "new": ours.new_requests(output),
        "cached": ours.continued_requests(output, requests),
        # The later model runner gets resumed requests as new ones.
        "resumed": [*resumed, *output.scheduled_cached_reqs.resumed_req_ids],
        "preempted": _preempted(scheduler, output),
        "refused": [*_refusals.pop(manager, ())],
        "short": list(_short(output, requests)),
        "released": sorted(output.finished_req_ids),
        "running": running,
        "waiting": [*map(_REQUEST_ID, waiting)],
        "num_waiting": sum(map(len, queues)),
        "blocked": [
            (request.request_id, status) for request in waiting if (status := request.status._name_) not in _READY
        ],
        "wanted": _wanted(scheduler.running, waiting, output),
        "limit": getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs),
        "in_order": scheduler.policy.name == "FCFS",  # by priority, the first to be resumed is unknown
        "threshold": scheduler.scheduler_config.long_prefill_token_threshold,
        "budget": scheduler.max_num_scheduled_tokens,
        "block_size": scheduler.block_size,
        "free": manager.block_pool.get_num_free_blocks(),
        "total": manager.block_pool.num_gpu_blocks - 1,
        "encoder": scheduled_items(scheduler, output),
    }
    _ran[scheduler] = running
    return facts


def _in_order(queue: Iterable[Any]) -> Iterable[Any]:
    """Return the requests of a queue in order. Iterating a priority queue would pop all from a copy of its heap."""
    heap = getattr(queue, "_heap", None)
    if not isinstance(heap, list):
        return queue
    if heap and isinstance(heap[0], tuple):  # 0.11: (priority, arrival time, request)
        return (request for *_, request in _first_of_heap(heap, itemgetter(0, 1)))
    return _first_of_heap(heap, _PRIORITY)


def _first_of_heap(heap: Sequence[Any], rank: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the items of a heap in order without changing it, visiting only few more than are taken."""
    candidates = [(rank(heap[0]), 0)] if heap else []
    while candidates:
        _, index = heappop(candidates)
        yield heap[index]
        for child in range(2 * index + 1, min(2 * index + 3, len(heap))):
            heappush(candidates, (rank(heap[child]), child))


def _wanted(running: Iterable[Any], waiting: Iterable[Any], output: Any) -> dict[str, int]:
    """Return the tokens left to compute for running requests that got none, and for the first waiting one that is
    ready; for the latter some may be cached."""
    idle = [request for request in running if request.request_id not in output.num_scheduled_tokens]
    ready = next((request for request in waiting if request.status._name_ in _READY), None)
    counted = idle if ready is None else [*idle, ready]
    return {request.request_id: request.num_tokens - request.num_computed_tokens for request in counted}


def _preempted(scheduler: Any, output: Any) -> list[str]:
    """Return the requests preempted in this step, in order: the last running ones first, or the least urgent."""
    preempted, ran = getattr(output, "preempted_req_ids", None), _ran.get(scheduler, [])
    if preempted is not None:  # not in versions before 0.12 or so
        ran = [*(name for name in ran if name in preempted), *preempted.difference(ran)] if preempted else []
    requests = scheduler.requests
    lost = [requests[name] for name in ran if name in requests and requests[name].status._name_ == "PREEMPTED"]
    if scheduler.policy.name == "PRIORITY":
        lost.sort(key=_PRIORITY)
    return [request.request_id for request in reversed(lost)]


def _short(output: Any, requests: Any) -> Iterator[tuple[str, int]]:
    """Yield the scheduled requests that have tokens left to compute, and how many."""
    for request_id in output.num_scheduled_tokens:
        request = requests[request_id]
        if (left := request.num_tokens - request.num_computed_tokens) > 0:  # both include what was just scheduled
            yield request_id, left


def give_schedule(facts: Any) -> dict[str, Any]:
    """Give the schedule in the form of tracellm's scheduler, with derived reasons."""
    resumed, cached = set(facts["resumed"]), ours.cached_rows(facts["cached"])
    new = [row for row in facts["new"] if row[0] not in resumed]
    back = [
        (request_id, computed, blocks, False) for request_id, computed, blocks in facts["new"] if request_id in resumed
    ]
    return {"scheduled": {**facts, "new": new, "cached": [*cached, *back], "held": list(_held_requests(facts))}}


# -- reasons why requests were not scheduled --------------------------------------------------------------------------

_BLOCKED = {
    "WAITING_FOR_FSM": "grammar",
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "grammar",
    "WAITING_FOR_REMOTE_KVS": "remote_kvs",
    "WAITING_FOR_STREAMING_REQ": "streaming_input",
}
"""Reasons by the state of a request that the scheduler skips."""

_Held = tuple[str, str, dict[str, int | str]]
"""A request, the reason, and the numbers behind it."""


def _held_requests(facts: Any) -> Iterator[_Held]:
    """Yield the requests that were not scheduled, or got too few tokens, as far as a reason can be derived."""
    scheduled, preempted, blocked = facts["tokens"], facts["preempted"], dict(facts["blocked"])
    yield from _cut_short(facts)
    yield from _why_preempted(facts)
    left = facts["budget"] - sum(scheduled.values())
    for request_id in facts["running"]:
        if request_id in scheduled or facts["wanted"].get(request_id, 0) <= 0:  # or its last token is not here yet
            continue
        if not left:
            yield request_id, "token_budget", _no_budget(request_id, facts)
        elif preempted:
            yield request_id, "behind", {"request": preempted[-1], "cause": "preempted"}
    for request_id, status in blocked.items():
        yield request_id, _BLOCKED.get(status, status.lower()), {}
    waiting = [name for name in facts["waiting"] if name not in blocked and name not in preempted]
    if waiting:
        yield from _why_waiting(waiting, left, facts)


def _cut_short(facts: Any) -> Iterator[_Held]:
    left, wanted_more = facts["budget"], dict(facts["short"])
    for request_id, scheduled in facts["tokens"].items():
        if request_id in wanted_more:
            numbers: dict[str, int | str] = {"wanted": scheduled + wanted_more[request_id], "given": scheduled}
            if scheduled == facts["threshold"] > 0:
                yield request_id, "chunk_threshold", {"threshold": scheduled, **numbers}
            elif scheduled == left:
                yield request_id, "token_budget", {"budget": facts["budget"], "left": left, **numbers}
        left -= scheduled


def _why_preempted(facts: Any) -> Iterator[_Held]:
    """Yield the preempted requests: each refusal of blocks to a running request preempts one, perhaps itself."""
    preempted, refused = facts["preempted"], facts["refused"]
    if len(preempted) != len(refused):  # the refusals were not recorded
        refused = [None] * len(preempted)
    refused_ids = {refusal[0] for refusal in refused if refusal is not None}
    for request_id, refusal in zip(preempted, refused, strict=True):
        if refusal is None or (len(refused_ids) > 1 and not facts["in_order"]):
            yield request_id, "preempted", {}
        else:
            yield request_id, "preempted", {"by": refusal[0], **_numbers(refusal)}


def _why_waiting(waiting: list[str], left: int, facts: Any) -> Iterator[_Held]:
    """Yield the reasons of waiting requests, by the conditions that end the scheduler's loop, in its order."""
    first, *others = waiting
    if facts["preempted"]:
        cause, first, others = "preempted", facts["preempted"][-1], waiting
    elif not left:
        cause = "token_budget"
        yield first, cause, _no_budget(first, facts)
    elif len(facts["running"]) >= facts["limit"]:
        for request_id in waiting:
            yield request_id, "max_num_seqs", {"limit": facts["limit"], "running": len(facts["running"])}
        return
    elif facts["refused"] and facts["refused"][-1][0] in waiting:
        cause, refusal = "no_free_blocks", facts["refused"][-1]
        first, others = refusal[0], [name for name in waiting if name != refusal[0]]
        yield first, cause, _numbers(refusal)
    else:
        return
    for request_id in others:
        yield request_id, "behind", {"request": first, "cause": cause}


def _no_budget(request_id: str, facts: Any) -> dict[str, int | str]:
    return {"budget": facts["budget"], "left": 0, "wanted": facts["wanted"].get(request_id, 0), "given": 0}


def _numbers(refusal: Refusal) -> dict[str, int | str]:
    _, needed, free = refusal
    return {"free": free} if needed is None else {"needed": needed, "free": free}


# -- the step ---------------------------------------------------------------------------------------------------------


def _capture_update(args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    """Capture the finished requests, the new tokens, and the shape of the logits if each request got one token at most:
    a row for each."""
    scheduled = argument(args, kwargs, 1, "scheduler_output").num_scheduled_tokens
    model_output = argument(args, kwargs, 2, "model_runner_output")
    sampled, row_of = model_output.sampled_token_ids or (), model_output.req_id_to_index.get
    count = len(sampled)
    tokens = [
        (request_id, *map(int, sampled[row])) for request_id in scheduled if (row := row_of(request_id, count)) < count
    ]
    one_each = all(len(row) <= 1 for row in sampled)
    return {
        "ended": ours.finished_requests(outputs),
        "outputs_made": ours.outputs_times(outputs),
        "tokens": tokens,
        "of_a_step": bool(scheduled),
        "shape": (count, args[0].vllm_config.model_config.get_vocab_size()) if count and one_each else (),
    }


def _complete_step(tracker: RequestTracker, span: Span, returned: Any, child_facts: dict[str, Any]) -> None:
    """Complete the span as for tracellm's engine.

    Tokens whose sampling was not recorded here are from other processes: they have no probabilities, and may be of an
    earlier step.
    """
    child_facts.setdefault("logits_shape", child_facts.get("shape", ()))
    ours.complete_step(tracker, span, returned, child_facts)
    if "sampled" not in child_facts and "tokens" in child_facts:
        if child_facts["of_a_step"] and (output_of := tracker.output_of(False, {"late": True})) != tracker.steps:
            span.attributes[names.STEP_OUTPUT_OF] = output_of
        rows = [(request_id, token) for request_id, *tokens in child_facts["tokens"] for token in tokens]
        span.attributes[names.STEP_SAMPLED] = [request_id for request_id, _ in rows]
        span.attributes[names.STEP_SAMPLED_IDS] = [token for _, token in rows]
        if tracker.decode is not None:
            span.attributes[names.STEP_SAMPLED_TEXTS] = [tracker.decode(token) for _, token in rows]


_CORE, _SCHEDULER = "v1.engine.core:EngineCore", "v1.core.sched.scheduler:Scheduler"
_EXECUTOR = "v1.executor.multiproc_executor:MultiprocExecutor"

ENTRIES = (
    like(ours.ENTRIES, f"{_CORE}.step", ours.STEP, observe=_complete_step),
    like(
        ours.ENTRIES, f"{_CORE}.step_with_batch_queue", ours.STEP, observe=_complete_step, also="step_with_batch_queue"
    ),
    like(ours.ENTRIES, f"{_SCHEDULER}.schedule", capture=_capture_schedule, gives=give_schedule, gives_to=STEPS),
    like(ours.ENTRIES, f"{_SCHEDULER}.update_from_output", capture=_capture_update, gives_to=STEPS),
    *vllm_only(
        "step",
        "v1.core.kv_cache_manager:KVCacheManager",
        "allocate_slots",
        capture=capture_allocation,
        attributes=_allocation,
        in_short=True,
    ),
    *vllm_only("layer", "v1.core.kv_cache_coordinator:*KVCacheCoordinator*", "find_longest_cache_hit"),
    *vllm_only("step", _EXECUTOR, "execute_model", "sample_tokens"),
    *vllm_only("layer", "v1.engine.detokenizer:BaseIncrementalDetokenizer", "update"),
)
