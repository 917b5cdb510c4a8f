"""What comes back from a vLLM's engine core, and the end of a request.

vLLM: vllm/v1/engine/output_processor.py, detokenizer.py.
"""

from typing import Any

from tracellm.probes.catalog.engine import outputs as ours
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.vllm.entries import at, like, plain
from tracellm.probes.context.exceptions import remember
from tracellm.probes.wrapping.probe import Entry

__all__ = ["ENTRIES", "outputs_of"]


def outputs_of(request_outputs: Any) -> list[tuple[str, int, str, int, str | None]]:
    """Of every output: its request as the caller knows it, its index there, text, number of tokens, why it ended.

    Of an embedding, which is one value and no list, only that it ended.
    """
    found = []
    for output in request_outputs:
        if isinstance(output.outputs, list):
            found += [
                (output.request_id, one.index, one.text, len(one.token_ids), one.finish_reason)
                for one in output.outputs
                if one is not None
            ]
        elif output.finished:
            found.append((output.request_id, 0, "", 0, "stop"))
    return found


def _capture_outputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    new = argument(args, kwargs, 1, "engine_core_outputs")
    ended = [(one.request_id, str(one.finish_reason)) for one in new if one.finish_reason is not None]
    ended += [(request_id, "stop") for request_id in result.reqs_to_abort]
    return len(new), outputs_of(result.request_outputs), ended, ours.received_of(new)


def _capture_put(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    output = argument(args, kwargs, 1, "output")
    return None if isinstance(output, Exception) else outputs_of([output])


def _capture_error(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return remember(argument(args, kwargs, 1, "e"))[:2], list(args[0].request_states)


def _capture_finished(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    ids = argument(args, kwargs, 1, "request_ids")
    if ids is None:  # all
        ids = [request.request_id for request in result or () if hasattr(request, "request_id")]
    return [ids] if isinstance(ids, str) else list(ids)


_PROCESSOR = "v1.engine.output_processor:OutputProcessor"

ENTRIES = (
    like(ours.ENTRIES, "OutputProcessor.process_outputs", _PROCESSOR + ".process_outputs", capture=_capture_outputs),
    *plain("request", "v1.engine.llm_engine", "LLMEngine.abort_request"),
    like(ours.ENTRIES, "OutputProcessor.abort_requests", _PROCESSOR + ".abort_requests"),
    Entry(at("v1.engine.core:EngineCore.abort_requests"), "request", span_name="EngineCore.abort_requests"),
    like(ours.ENTRIES, "OutputProcessor.propagate_error", _PROCESSOR + ".propagate_error", capture=_capture_error),
    like(
        ours.ENTRIES,
        "RequestOutputCollector.put",
        "v1.engine.output_processor:RequestOutputCollector.put",
        capture=_capture_put,
    ),
    like(
        ours.ENTRIES,
        "Scheduler.finish_requests",
        "v1.core.sched.scheduler:Scheduler.finish_requests",
        capture=_capture_finished,
    ),
)
