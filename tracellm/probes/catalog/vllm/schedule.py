"""What a vLLM's scheduler decided, read off its own objects after each `Scheduler.schedule`.

Why requests were held follows from that later (scheduling_reasons.py).

vLLM: vllm/v1/core/sched/scheduler.py::Scheduler, vllm/v1/core/kv_cache_manager.py::KVCacheManager.
"""

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from tracellm.probes.catalog.engine.step import LISTED, cached_rows, going_on, new_requests
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.vllm.scheduling_reasons import Refusal, held_requests
from tracellm.trace import names

__all__ = ["allocation", "capture_allocation", "capture_schedule", "give_schedule"]

_QUEUES = ("kv_holding_waiting", "skipped_waiting", "waiting")
"""Where requests wait, in the order in which the scheduler looks; which of them there are depends on the version."""

_ABLE = ("WAITING", "PREEMPTED")
"""The states of those who wait for their turn only; read as `_name_`, as `name` takes ten times as long."""

_REQUEST_ID = attrgetter("request_id")
_PRIORITY = attrgetter("priority", "arrival_time", "request_id")

_MOST_REFUSALS = 1024
"""Of a step; they would pile up where `Scheduler.schedule`, which takes them, is not recorded."""

_refusals: WeakKeyDictionary[Any, deque[Refusal]] = WeakKeyDictionary()
"""By KVCacheManager, those of the step that is being scheduled."""

_ran: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
"""By Scheduler, the requests that ran after the last step, in its order: who was among them and waits now was
preempted."""


# -- blocks for one request -------------------------------------------------------------------------------------------


def capture_allocation(args: tuple[Any, ...], kwargs: dict[str, Any], blocks: Any) -> Any:
    """Of `KVCacheManager.allocate_slots`: for whom, for how many tokens, and how many blocks that took."""
    request = args[1] if len(args) > 1 else kwargs["request"]  # once a request and step: nothing is called for it
    num_tokens = args[2] if len(args) > 2 else kwargs["num_new_tokens"]
    if blocks is not None:
        return request.request_id, num_tokens, sum(map(len, blocks.blocks))
    manager = args[0]
    refusal = request.request_id, _needed(args, kwargs), manager.block_pool.get_num_free_blocks()
    _refusals.setdefault(manager, deque(maxlen=_MOST_REFUSALS)).append(refusal)
    return request.request_id, num_tokens, None


def _needed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """How many free blocks a request lacked; None where its layers share no one table of blocks.

    Cached blocks count among the needed when nobody uses them, since they are free ones too.
    """
    manager, request = args[0], argument(args, kwargs, 1, "request")
    given = inspect.signature(type(manager).allocate_slots).bind(*args, **kwargs).arguments.get
    if len(manager.coordinator.single_type_managers) != 1:
        return None
    (table,) = manager.coordinator.single_type_managers
    tokens = request.num_computed_tokens + given("num_new_tokens", 0) + given("num_lookahead_tokens", 0)
    tokens += given("num_new_computed_tokens", 0) + given("num_external_computed_tokens", 0)
    if given("full_sequence_must_fit", False):
        tokens = max(tokens, request.num_tokens)
    own = len(table.req_to_blocks.get(request.request_id, ()))
    cached = given("new_computed_blocks")
    shared = sum(block.ref_cnt > 0 for block in cached.blocks[0]) if cached is not None else 0
    needed = -(-min(tokens, manager.max_model_len) // table.block_size) - own - shared
    return needed if needed > manager.block_pool.get_num_free_blocks() else None


def allocation(facts: Any) -> dict[str, Any]:
    """That call's arguments and its result, in words."""
    request_id, num_tokens, num_blocks = facts
    return {
        names.ARGUMENTS: [f"request={request_id}", f"num_new_tokens={num_tokens}"],
        names.RESULT: "None: too few blocks are free" if num_blocks is None else f"{num_blocks} new blocks",
    }


# -- the step ---------------------------------------------------------------------------------------------------------


def capture_schedule(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """Who got how many tokens and which blocks, and how things stand after that."""
    scheduler, requests, manager = args[0], args[0].requests, args[0].kv_cache_manager
    queues = [getattr(scheduler, name, ()) for name in _QUEUES]
    waiting = [*islice(chain.from_iterable(map(_in_order, queues)), LISTED)]
    running = [*map(_REQUEST_ID, scheduler.running)]
    resumed = [new.req_id for new in output.scheduled_new_reqs if requests[new.req_id].num_preemptions > 0]
    facts = {
        "tokens": output.num_scheduled_tokens.copy(),
        "new": new_requests(output),
        "cached": going_on(output, requests),
        # A later model runner takes those that come back as new.
        "resumed": [*resumed, *output.scheduled_cached_reqs.resumed_req_ids],
        "preempted": _preempted(scheduler, output),
        "refused": [*_refusals.pop(manager, ())],
        "short": list(_short(output, requests)),
        "released": sorted(output.finished_req_ids),
        "running": running,
        "waiting": [*map(_REQUEST_ID, waiting)],
        "num_waiting": sum(map(len, queues)),
        "blocked": [
            (request.request_id, status) for request in waiting if (status := request.status._name_) not in _ABLE
        ],
        "wanted": _wanted(scheduler.running, waiting, output),
        "limit": getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs),
        "in_order": scheduler.policy.name == "FCFS",  # of a queue by priority it is not known who came back first
        "threshold": scheduler.scheduler_config.long_prefill_token_threshold,
        "budget": scheduler.max_num_scheduled_tokens,
        "block_size": scheduler.block_size,
        "free": manager.block_pool.get_num_free_blocks(),
        "total": manager.block_pool.num_gpu_blocks - 1,
    }
    _ran[scheduler] = running
    return facts


def _in_order(queue: Iterable[Any]) -> Iterable[Any]:
    """The requests of a queue, the first first. One by priority takes them off a copy, which is slow for many."""
    heap = getattr(queue, "_heap", None)
    if not isinstance(heap, list):
        return queue
    if heap and isinstance(heap[0], tuple):  # 0.11: (priority, arrival time, request)
        return (request for *_, request in _first_of_heap(heap, itemgetter(0, 1)))
    return _first_of_heap(heap, _PRIORITY)


def _first_of_heap(heap: Sequence[Any], rank: Callable[[Any], Any]) -> Iterator[Any]:
    """What is in a heap, the first first, which is left as it is; who takes a few looks at a few times as many."""
    ahead = [(rank(heap[0]), 0)] if heap else []
    while ahead:
        _, place = heappop(ahead)
        yield heap[place]
        for below in range(2 * place + 1, min(2 * place + 3, len(heap))):
            heappush(ahead, (rank(heap[below]), below))


def _wanted(running: Iterable[Any], waiting: Iterable[Any], output: Any) -> dict[str, int]:
    """How many tokens those who run but got none have to compute, and the first of those who wait and could begin.

    Of the latter all are counted, some of which may be cached.
    """
    idle = [request for request in running if request.request_id not in output.num_scheduled_tokens]
    able = next((one for one in waiting if one.status._name_ in _ABLE), None)
    told = idle if able is None else [*idle, able]
    return {one.request_id: one.num_tokens - one.num_computed_tokens for one in told}


def _preempted(scheduler: Any, output: Any) -> list[str]:
    """Who lost its blocks in this step, the first first: the last of those who ran, or the least urgent of them."""
    told, ran = getattr(output, "preempted_req_ids", None), _ran.get(scheduler, [])
    if told is not None:  # versions before 0.12 or so tell nobody
        ran = [*(one for one in ran if one in told), *told.difference(ran)] if told else []
    requests = scheduler.requests
    lost = [requests[one] for one in ran if one in requests and requests[one].status._name_ == "PREEMPTED"]
    if scheduler.policy.name == "PRIORITY":
        lost.sort(key=_PRIORITY)
    return [one.request_id for one in reversed(lost)]


def _short(output: Any, requests: Any) -> Iterator[tuple[str, int]]:
    """The requests that got fewer tokens than they have left to compute, and how many these are still."""
    for request_id in output.num_scheduled_tokens:
        request = requests[request_id]
        if (left := request.num_tokens - request.num_computed_tokens) > 0:  # both count what was just scheduled
            yield request_id, left


def give_schedule(facts: Any) -> dict[str, Any]:
    """The facts as those of our engine's scheduler are, which knows the reasons itself."""
    resumed, cached = set(facts["resumed"]), cached_rows(facts["cached"])
    new = [one for one in facts["new"] if one[0] not in resumed]
    back = [
        (request_id, computed, blocks, False) for request_id, computed, blocks in facts["new"] if request_id in resumed
    ]
    return {"scheduled": {**facts, "new": new, "cached": [*cached, *back], "held": list(held_requests(facts))}}
