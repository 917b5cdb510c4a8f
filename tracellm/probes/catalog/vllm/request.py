"""A request to a vLLM where it differs from tracellm's engine: its submission, its span, its ids.

Both engines of the front half submit requests to `OutputProcessor.add_request`, where the request's span begins. It
travels in `trace_headers` under a header of its own, so that the `traceparent` that vLLM's tracing reads stays as it
was. Later versions give each request an internal id besides the caller's; the tracker learns which belong together.

vLLM: vllm/entrypoints/llm.py, vllm/v1/engine/processor.py or input_processor.py, vllm/renderers/.
"""

from typing import Any

from tracellm.probes.catalog.engine import request as ours
from tracellm.probes.catalog.entries import argument, like, vllm_only
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import changed_parameters
from tracellm.probes.catalog.token_texts import learn_tokenizer, tokenizer_facts
from tracellm.probes.catalog.vllm.startup import default_stop_tokens
from tracellm.probes.context.exceptions import remember
from tracellm.probes.context.traceparent import parse
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "HEADER"]

HEADER = "tracellm-life"


def _assign_request_span(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Assign a span as for tracellm's engine, unless the call continues a running request."""
    request = argument(args, kwargs, 1, "request")
    if request.request_id not in args[0].request_states:
        ours.assign_request_span(args, kwargs, HEADER)


def _request_span(request: Any) -> tuple[str, str] | None:
    """Return trace id and span id of the request's span, if its submission was recorded."""
    return parse((request.trace_headers or {}).get(HEADER))


def _external_id(request: Any) -> str:
    """Return the caller's id of a request."""
    return str(getattr(request, "external_req_id", None) or request.request_id)


def _capture_submitted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request, prompt = argument(args, kwargs, 1, "request"), argument(args, kwargs, 2, "prompt")
    parent, params, processor = argument(args, kwargs, 3, "parent_req"), request.sampling_params, args[0]
    sibling = None
    if parent is not None:
        sibling = _external_id(parent), int(argument(args, kwargs, 4, "request_index", 0)), parent.n
    return (
        ours.submission(request, prompt, sibling),
        ([], []) if params is None else _parameters(params, default_stop_tokens(processor)),
        _external_id(request),
        tokenizer_facts(processor.tokenizer),
        _request_span(request),
    )


def _parameters(params: Any, stops: frozenset[int]) -> tuple[list[str], list[str]]:
    """Return the changed parameters without one that vLLM itself fills in."""
    values, texts = changed_parameters(params, stops)
    return [value for value in values if value != "watermarking=False"], texts


def _begin_submitted(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    if facts is None:
        return
    submitted, parameters, external_id, tokenizer, request_span = facts
    request_id = submitted["request_id"]
    if span.error is not None:
        tracker.refused(request_id, "" if request_span is None else request_span[1])
        return
    learn_tokenizer(tracker, tokenizer)
    if not tracker.is_open(request_id):  # it may have ended before this call did
        return
    ours.begin_request(tracker, span, submitted, parameters)
    if external_id != request_id:
        tracker.request(request_id, span.start_ns).attributes[names.GEN_AI_RESPONSE_ID] = external_id
        if submitted["parent"] is None:
            tracker.add_child(external_id, 0, request_id)


def _capture_queued(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request = argument(args, kwargs, 1, "request")
    return request.request_id, _request_span(request)


def _capture_error(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return remember(argument(args, kwargs, 1, "e"))[:2], list(args[0].request_states)


_OFFLINE = "entrypoints.common.offline:OfflineInferenceMixin"
_RENDERER = "renderers.base:BaseRenderer"
_OUTPUTS = "v1.engine.output_processor:OutputProcessor"
_QUEUES = "v1.core.sched.request_queue"

ENTRIES = (
    *vllm_only("request", "entrypoints.llm:LLM", "preprocess_chat", removed="0.32.0"),
    *vllm_only("request", _OFFLINE, "_preprocess_chat", "_preprocess_cmpl", "_render_and_add_requests", added="0.32.0"),
    *vllm_only("request", "v1.engine.input_processor:InputProcessor", "assign_request_id", added="0.32.0"),
    *vllm_only("request", "inputs.preprocess:InputPreprocessor", "_tokenize_prompt", removed="0.32.0"),
    *vllm_only(
        "request", _RENDERER, "render_cmpl", "render_chat", "tokenize_prompt", "process_for_engine", added="0.32.0"
    ),
    *vllm_only("request", "renderers.hf:HfRenderer", "render_messages", added="0.32.0"),
    *vllm_only(
        "request",
        _OUTPUTS,
        "add_request",
        capture=_capture_submitted,
        attributes=lambda facts: ours.submission_attributes(facts[0]),
        observe=_begin_submitted,
        even_if_raises=True,
        before=_assign_request_span,
    ),
    *vllm_only("request", "v1.structured_output.backend_xgrammar:XgrammarBackend", "compile_grammar"),
    like(
        ours.ENTRIES,
        "v1.core.sched.scheduler:Scheduler.add_request",
        "Scheduler.add_request",
        capture=_capture_queued,
    ),
    *vllm_only("request", f"{_QUEUES}:FCFSRequestQueue", "add_request", lifeline="Scheduler"),
    *vllm_only("request", f"{_QUEUES}:PriorityRequestQueue", "add_request", lifeline="Scheduler"),
    like(ours.ENTRIES, f"{_OUTPUTS}.propagate_error", capture=_capture_error),
)
