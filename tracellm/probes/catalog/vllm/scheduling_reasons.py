"""Why requests were held by a vLLM's scheduler, concluded from how things stood after it (schedule.py).

vLLM has no reasons. These follow from what decides it in the scheduler's loop: the tokens and the places left, the
blocks that were refused, the state that a request waits in. What cannot be concluded so, as a limit on adapters or a
transfer of KV blocks, is told by the request's state, or not at all.

vLLM: vllm/v1/core/sched/scheduler.py::Scheduler.schedule.
"""

from collections.abc import Iterator
from typing import Any

__all__ = ["Held", "Refusal", "held_requests"]

_BLOCKED = {
    "WAITING_FOR_FSM": "grammar",
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "grammar",
    "WAITING_FOR_REMOTE_KVS": "remote_kvs",
    "WAITING_FOR_STREAMING_REQ": "streaming_input",
}
"""Why the scheduler passes over a request in this state."""

Held = tuple[str, str, dict[str, int | str]]
"""A request, why it was held, and the numbers behind that."""

Refusal = tuple[str, int | None, int]
"""A request that was refused KV blocks: its id, how many it needed if that can be told, and how many were free."""


def held_requests(facts: Any) -> Iterator[Held]:
    """Who was not scheduled, or got less than it wanted, and why, as far as that can be concluded."""
    scheduled, preempted, blocked = facts["tokens"], facts["preempted"], dict(facts["blocked"])
    yield from _cut_short(facts)
    yield from _why_preempted(facts)
    left = facts["budget"] - sum(scheduled.values())
    for request_id in facts["running"]:
        if request_id in scheduled or facts["wanted"].get(request_id, 0) <= 0:  # or its last token is awaited
            continue
        if not left:
            yield request_id, "token_budget", _no_budget(request_id, facts)
        elif preempted:
            yield request_id, "behind", {"request": preempted[-1], "cause": "preempted"}
    for request_id, status in blocked.items():
        yield request_id, _BLOCKED.get(status, status.lower()), {}
    untold = [one for one in facts["waiting"] if one not in blocked and one not in preempted]
    if untold:
        yield from _why_waiting(untold, left, facts)


def _cut_short(facts: Any) -> Iterator[Held]:
    given_to, left_over = facts["tokens"], facts["budget"]
    still = dict(facts["short"])
    for request_id, given in given_to.items():
        if request_id in still:
            numbers: dict[str, int | str] = {"wanted": given + still[request_id], "given": given}
            if given == facts["threshold"] > 0:
                yield request_id, "chunk_threshold", {"threshold": given, **numbers}
            elif given == left_over:
                yield request_id, "token_budget", {"budget": facts["budget"], "left": left_over, **numbers}
        left_over -= given


def _why_preempted(facts: Any) -> Iterator[Held]:
    """Whenever a running request is refused blocks somebody is preempted, perhaps itself, and nobody new begins."""
    preempted, refused = facts["preempted"], facts["refused"]
    if len(preempted) != len(refused):  # the refusals were not recorded
        refused = [None] * len(preempted)
    by = {refusal[0] for refusal in refused if refusal is not None}
    for request_id, refusal in zip(preempted, refused, strict=True):
        if refusal is None or (len(by) > 1 and not facts["in_order"]):
            yield request_id, "preempted", {}
        else:
            yield request_id, "preempted", {"by": refusal[0], **_numbers(refusal)}


def _why_waiting(untold: list[str], left: int, facts: Any) -> Iterator[Held]:
    """The scheduler's loop over the waiting ends where one of these is so, which it asks in this order."""
    first, *others = untold
    if facts["preempted"]:
        cause, first, others = "preempted", facts["preempted"][-1], untold
    elif not left:
        cause = "token_budget"
        yield first, cause, _no_budget(first, facts)
    elif len(facts["running"]) >= facts["limit"]:
        for request_id in untold:
            yield request_id, "max_num_seqs", {"limit": facts["limit"], "running": len(facts["running"])}
        return
    elif facts["refused"] and facts["refused"][-1][0] in untold:
        cause, refusal = "no_free_blocks", facts["refused"][-1]
        first, others = refusal[0], [one for one in untold if one != refusal[0]]
        yield first, cause, _numbers(refusal)
    else:
        return
    for request_id in others:
        yield request_id, "behind", {"request": first, "cause": cause}


def _no_budget(request_id: str, facts: Any) -> dict[str, int | str]:
    """When its turn came, all tokens were given away."""
    return {"budget": facts["budget"], "left": 0, "wanted": facts["wanted"].get(request_id, 0), "given": 0}


def _numbers(refusal: Refusal) -> dict[str, int | str]:
    _, needed, free = refusal
    return {"free": free} if needed is None else {"needed": needed, "free": free}
