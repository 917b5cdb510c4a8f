"""A request's place in the recording: given before it goes to the engine core, read where it arrives.

The life of a request (`llm_request`) is a span of the process where it is submitted. It travels with the request, in
`trace_headers`, so that each step of the engine core can be linked to it, in whichever process that runs.
"""

from typing import Any

from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.call_context import SUBMITTED, call_and_place, state
from tracellm.probes.context.traceparent import HEADER, parse, write
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ADDED", "ARRIVES", "give_place"]


def give_place(args: tuple[Any, ...], kwargs: dict[str, Any], header: str = HEADER) -> None:
    """Settle trace and span of the request's life, and let the request carry them, as `header`, where it goes.

    It has the trace of the HTTP request, or user's span, in which it is submitted, or of the headers that came with it,
    and there is its parent; else one of its own.
    """
    request = argument(args, kwargs, 1, "request")
    headers = request.trace_headers or {}
    given, (around, place) = parse(headers.get(HEADER)), call_and_place()
    call, trace_id, parent = 0, "", None
    begun = place.whose
    if begun is not None and (given is None or given[0] == begun.trace_id):
        call, trace_id, parent = around, begun.trace_id, begun.parent
    elif given is not None:
        trace_id, parent = given
    else:
        trace_id = state.ids.trace()
    span_id = state.ids.request_span()
    request.trace_headers = {**headers, header: write(trace_id, span_id)}
    if state.append is not None:
        now = state.clock()
        state.append((SUBMITTED, call, 0, 0, now, now, (request.request_id, trace_id, span_id, parent), None))


def _capture_arrived(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return argument(args, kwargs, 1, "request").request_id


def _arrived(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: [f"request_id={facts}"], names.RESULT: "Request"}


def _capture_added(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request = argument(args, kwargs, 1, "request")
    return request.request_id, parse((request.trace_headers or {}).get(HEADER))


def _added(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: ["request=Request"]}


def _note_added(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is not None:
        tracker.arrived(facts[0])
        if facts[1] is not None:
            tracker.computed_here(facts[0], *facts[1])


ARRIVES = Entry(
    "tracellm.engine.core.core:EngineCore.preprocess_add_request",
    "request",
    _capture_arrived,
    _arrived,
    span_name="EngineCore.preprocess_add_request",
)

ADDED = Entry(
    "tracellm.engine.core.sched.scheduler:Scheduler.add_request",
    "request",
    _capture_added,
    _added,
    observe=_note_added,
    lifeline="Scheduler",
    span_name="Scheduler.add_request",
)
"""In turn with aborts, which `preprocess_add_request` is not: an id may be used again as soon as it was given up."""
