"""A request goes on and ends: what each step brings for it, what its caller is given, why it is over.

Worth telling: how many outputs came, how many requests ended. The texts are the life's (`llm_request`), which begins in
request.py.
"""

from typing import Any

from tracellm.probes.catalog.helpers import argument, inherited, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.exceptions import remember
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "outputs_of", "received_of"]


def outputs_of(request_outputs: Any) -> list[tuple[str, int, str, int, str | None]]:
    """Of every output: its request as the caller knows it, its index there, text, number of tokens, why it ended."""
    return [
        (output.request_id, one.index, one.text, len(one.token_ids), one.finish_reason)
        for output in request_outputs
        for one in output.outputs
    ]


def received_of(engine_core_outputs: Any) -> list[tuple[str, int]]:
    """Of every request that the engine has made tokens for, how many."""
    return [(one.request_id, len(one.new_token_ids)) for one in engine_core_outputs if one.new_token_ids]


# -- a request goes on and ends ---------------------------------------------------------------------------------------


def _capture_outputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    new = argument(args, kwargs, 1, "engine_core_outputs")
    ended = [(one.request_id, str(one.finish_reason)) for one in new if one.finish_reason is not None]
    ended += [(request_id, "stop") for request_id in result.reqs_to_abort]
    return len(new), outputs_of(result.request_outputs), ended, received_of(new)


def _outputs(facts: Any) -> dict[str, Any]:
    num_new, _, ended, _ = facts
    return {names.ARGUMENTS: [f"engine_core_outputs=list of {num_new}"], names.RESULT: f"{len(ended)} finished"}


def _note_outputs(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    _, outputs, ended, received = facts or (0, (), (), ())
    for request_id, num_tokens in received:
        tracker.received(request_id, num_tokens, span.end_ns)
    for request_id, why in ended:
        tracker.engine_ended(request_id, span.end_ns, why)
    for known_as, index, text, num_tokens, reason in outputs:
        request_id = tracker.request_of(known_as, index)
        if reason == "abort" and not tracker.is_open(request_id):
            continue
        tracker.generated(request_id, text, num_tokens, span.end_ns)
        if reason is not None:
            tracker.ended(request_id, span.end_ns, reason)


def _capture_put(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    output = argument(args, kwargs, 1, "output")
    return None if isinstance(output, Exception) else outputs_of([output])


def _put(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: [f"output=RequestOutput of {facts[0][0]}" if facts else "output=RequestOutput"]}


def _note_put(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    _note_outputs(tracker, span, (0, facts or (), (), ()), given)


def _capture_error(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return remember(argument(args, kwargs, 1, "error"))[:2], list(result)


def _error(facts: Any) -> dict[str, Any]:
    return {names.RESULT: f"{len(facts[1])} requests failed"}


def _note_error(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is not None:
        (kind, message), request_ids = facts
        for request_id in request_ids:
            tracker.failed(request_id, span.end_ns, f"{kind}: {message}" if tracker.text and message else kind)


def _capture_aborted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return list(result)


def _aborted(facts: Any) -> dict[str, Any]:
    return {names.RESULT: f"{len(facts)} aborted"}


def _note_aborted(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    for request_id in facts or ():
        if tracker.is_open(request_id):  # else its reader was told, and so its life has ended
            tracker.ended(request_id, span.end_ns, "abort")


# -- the engine core lets go of requests ------------------------------------------------------------------------------


def _capture_finished(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    ids = argument(args, kwargs, 1, "request_ids")
    return [ids] if isinstance(ids, str) else list(ids)


def _finished(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: [f"request_ids=list of {len(facts)}"]}


def _note_finished(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    for request_id in facts or ():
        tracker.computed(request_id)


_OUTPUT_PROCESSOR = "tracellm.engine.frontend.output_processor:OutputProcessor"

ENTRIES = (
    # Once a step and once an output, and yet of the level of requests: without them no request has an end.
    Entry(_OUTPUT_PROCESSOR + ".process_outputs", "request", _capture_outputs, _outputs, observe=_note_outputs),
    *plain("request", "frontend.llm_engine", "LLMEngine.abort_request"),
    Entry(_OUTPUT_PROCESSOR + ".abort_requests", "request", _capture_aborted, _aborted, observe=_note_aborted),
    *inherited("request", "core.core", "EngineCore.abort_requests"),
    Entry(_OUTPUT_PROCESSOR + ".propagate_error", "request", _capture_error, _error, observe=_note_error),
    Entry(
        "tracellm.engine.frontend.output_collector:RequestOutputCollector.put",
        "request",
        _capture_put,
        _put,
        observe=_note_put,
    ),
    Entry(
        "tracellm.engine.core.sched.scheduler:Scheduler.finish_requests",
        "request",
        _capture_finished,
        _finished,
        observe=_note_finished,
        lifeline="Scheduler",
        span_name="Scheduler.finish_requests",
    ),
)
