"""Invariants of a correct engine, checked on the steps and messages of any recorded run.

A run that breaks one shows a fault of the engine, or of a student's code in it: a step over the budget, a block with
two owners, a request that was overtaken.

vLLM has no counterpart; its tests check some of these on the scheduler alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tracellm.report.facts.engines import EngineFacts, engines
from tracellm.report.facts.steps.states import StepState, StepStates
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.steps import Step, engine_key

__all__ = ["INVARIANTS", "Checked", "Violation", "check_invariants"]

INVARIANTS = ("budget", "running", "owners", "free", "computed", "order", "restored", "messages")
"""Names of the invariants; each has a text `invariant.NAME`, and its violations have `invariant.NAME.broken`."""

_Outcome = tuple[str, dict[str, Any] | None]
"""Name of an invariant, and the values of its violation; None if it holds."""

_GRAMMAR = "grammar"
"""Reason for which a waiting request may be overtaken."""


@dataclass(frozen=True)
class Violation:
    """A broken invariant: its name, the engine (from 0) and the number of the step, and the values of its text."""

    name: str
    engine: int = 0
    step: int | None = None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """Violations engine by engine in the order of the steps, then those of messages; names of what was checked.

    An invariant is not checked if the recording lacks what it is about, such as messages between processes.
    """

    violations: list[Violation] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def check_invariants(trace: Trace) -> Checked:
    """Check all invariants on a trace."""
    checked = Checked()

    def add(outcome: _Outcome, engine: int = 0, step: int | None = None) -> None:
        name, values = outcome
        checked.names.add(name)
        if values is not None:
            checked.violations.append(Violation(name, engine, step, values))

    for number, engine in enumerate(engines(trace)):
        arrivals = _arrivals(trace, engine)
        states = StepStates(trace, engine)
        for position in range(len(states)):
            state = states.at(position)
            for held in state.step.held:
                if held.reason == _GRAMMAR:
                    arrivals.pop(held.request_id, None)
            for outcome in _of_step(engine, state, arrivals):
                add(outcome, number, state.step.index)
    for outcome in _messages(trace):
        add(outcome)
    return checked


def _of_step(engine: EngineFacts, state: StepState, arrivals: dict[str, int]) -> Iterator[_Outcome]:
    step = state.step
    if step.token_budget:
        over = step.num_tokens > step.token_budget
        yield "budget", {"tokens": step.num_tokens, "budget": step.token_budget} if over else None
    limit = engine.settings.get("max_num_seqs", "")
    if limit.isdigit():
        over = len(step.running) > int(limit)
        yield "running", {"running": len(step.running), "limit": int(limit)} if over else None
    if engine.cache is None or engine.cache.num_groups == 1:
        yield from _owners(state)
    yield from _computed(engine, state)
    # without chunked prefill, prompts that are longer than the rest of the budget are skipped, and change their order
    if engine.settings.get("policy", "fcfs") == "fcfs" and engine.settings.get("enable_chunked_prefill") != "False":
        yield from _order(step, arrivals)


def _owners(state: StepState) -> Iterator[_Outcome]:
    """Compare the owners of each block with the blocks that were given as new ones, and with the free count."""
    step = state.step
    shared = {block for request in step.requests for block in request.cached_blocks}
    for request in step.requests:
        for block in request.new_blocks:
            owners = [name for name, table in state.tables.items() if block in table]
            wrong = len(owners) > 1 and block not in shared
            yield "owners", {"block": block, "owners": owners} if wrong else None
        twice = [block for block, count in Counter(state.tables.get(request.request_id, ())).items() if count > 1]
        if twice:
            yield "owners", {"block": twice[0], "owners": [request.request_id] * 2}
    used = {block for table in state.tables.values() for block in table}
    if step.blocks_total:
        lost = step.blocks_total - len(used) != step.blocks_free
        name = "free" if used else "restored"
        yield name, {"free": step.blocks_free, "total": step.blocks_total, "used": len(used)} if lost else None


def _computed(engine: EngineFacts, state: StepState) -> Iterator[_Outcome]:
    """Compare the computed tokens of each request with those that it has; one placeholder counts as a token."""
    placeholders = 1 if engine.settings.get("async_scheduling") == "True" else 0
    here = Counter(sampled.request_id for sampled in state.step.sampled)
    for request in state.step.requests:
        facts = state.requests.get(request.request_id)
        if facts is None or facts.input_tokens is None:
            continue
        outputs = len(state.outputs.get(request.request_id, ())) - here[request.request_id]
        total = facts.input_tokens + outputs + placeholders
        computed = request.num_computed + request.num_tokens
        values = {"request": request.request_id, "computed": computed, "total": total}
        yield "computed", values if computed > total else None


def _order(step: Step, arrivals: dict[str, int]) -> Iterator[_Outcome]:
    """Compare the requests that start with those that arrived earlier and still wait."""
    waiting = [name for name in step.waiting if name in arrivals]
    for started in step.new:
        overtaken = [name for name in waiting if arrivals[name] < arrivals.get(started, -1)]
        yield "order", {"request": started, "overtaken": overtaken[0]} if overtaken else None


def _arrivals(trace: Trace, engine: EngineFacts) -> dict[str, int]:
    """Return the place of each request in the order in which the engine core took them; the last of an id."""
    if not engine.steps:
        return {}
    process = engine_key(engine.steps[0].span)
    order: dict[str, int] = {}
    for place, span in enumerate(trace.named("EngineCore.preprocess_add_request")):
        arguments = span.attributes.get(names.ARGUMENTS)
        if engine_key(span) == process and isinstance(arguments, list):
            for argument in arguments:
                name, _, value = str(argument).partition("=")
                if name == "request_id":
                    order[value] = place
    return order


def _messages(trace: Trace) -> Iterator[_Outcome]:
    for message in trace.messages:
        receive = message.receive
        if receive is None or not receive.end_ns or receive.thread[0] != message.send.thread[0]:
            continue  # clocks of two machines differ
        early = receive.end_ns < message.send.start_ns
        yield "messages", {"type": message.send.attributes.get(names.MESSAGE_TYPE, "?")} if early else None
