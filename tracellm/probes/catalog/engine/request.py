"""Requests: from the user's line to the scheduler's queue, and back as outputs.

Each request has a span of its own, `llm_request`, in the process that submits it. The tracker completes it with the
facts of these calls. Its trace and span id travel in `trace_headers`, so the engine core in any process can link its
steps to it.

vLLM: vllm/entrypoints/llm.py, vllm/v1/engine/, vllm/inputs/preprocess.py, vllm/v1/core/sched/scheduler.py.
"""

import sys
from functools import partial
from typing import Any

from tracellm.probes.catalog.engine.items import item_attributes, item_places, note_cached
from tracellm.probes.catalog.engine.startup import capture_engine, learn_engine
from tracellm.probes.catalog.entries import argument, gives, ours_only, plain, users_line, vllm_only
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import changed_parameters
from tracellm.probes.context.call_context import SUBMITTED, current_call, state
from tracellm.probes.context.exceptions import remember
from tracellm.probes.context.traceparent import HEADER, parse, write
from tracellm.probes.wrapping.summary import brief, caller_attributes, written
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "assign_request_span", "begin_request", "submission", "submission_attributes"]

_MAX_PROMPT = 32_768
"""Token ids of a prompt that are kept; `tracellm whatif` schedules the prompt again from them."""
_MAX_TEXTS = 2048
"""Token ids of a prompt whose texts are kept."""

# -- generate, chat and pooling ----------------------------------------------------------------------------------------


def _capture_call(first: str, second: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture a method of `LLM`, whose first two arguments have these names; the second may be left out."""
    params = argument(args, kwargs, 2, second)
    passed = [(first, brief(argument(args, kwargs, 1, first)))]
    passed += [(second, brief(params))] if params is not None else []
    return users_line(), passed, brief(result), _outputs_of(result or ())


def _call(facts: Any) -> dict[str, Any]:
    line, passed, result, _ = facts
    return {**caller_attributes(line), **written(passed, result)}


def _end_generated(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """End the requests whose outputs no deeper call has recorded."""
    for external_id, index, text, num_tokens, reason, stopped_by in facts[3] if facts is not None else ():
        request_id = tracker.request_of(external_id, index)
        if tracker.is_open(request_id):
            tracker.generated(request_id, text, num_tokens, span.end_ns)
            tracker.ended(request_id, span.end_ns, reason, stopped_by)


def _capture_tokenized(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture lengths only; the text is an attribute of the request's span."""
    characters = len(argument(args, kwargs, 1, "text", ""))
    return {names.ARGUMENTS: [f"text=str of {characters}"], names.RESULT: f"{len(result)} tokens"}


# -- submission -------------------------------------------------------------------------------------------------------


def assign_request_span(args: tuple[Any, ...], kwargs: dict[str, Any], header: str = HEADER) -> None:
    """Choose trace and span id of the request's span before the call, and put them into its `trace_headers`.

    The span's parent is the HTTP request or user's span around the submission, or the one in the headers that came
    with the request; otherwise it begins a trace.
    """
    request = argument(args, kwargs, 1, "request")
    headers = request.trace_headers or {}
    received, (enclosing, thread) = parse(headers.get(HEADER)), current_call()
    call, trace_id, parent = 0, "", None
    scope = thread.active_scope
    if scope is not None and (received is None or received[0] == scope.trace_id):
        call, trace_id, parent = enclosing, scope.trace_id, scope.parent
    elif received is not None:
        trace_id, parent = received
    else:
        trace_id = state.ids.trace()
    span_id = state.ids.request_span()
    request.trace_headers = {**headers, header: write(trace_id, span_id)}
    if state.append is not None:
        now, number = state.clock(), thread.number if scope is not None and scope.request else 0
        facts = (request.request_id, trace_id, span_id, parent)
        state.append((SUBMITTED, call, 0, number, now, now, facts, None))


def _capture_submitted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request, prompt = argument(args, kwargs, 1, "request"), argument(args, kwargs, 2, "prompt")
    parent = argument(args, kwargs, 3, "parent_req")
    sibling = None if parent is None else (parent.request_id, argument(args, kwargs, 4, "request_index"), parent.n)
    return submission(request, prompt, sibling)


def submission(request: Any, prompt: Any, sibling: tuple[str, int, int] | None) -> dict[str, Any]:
    """Return what is recorded of a submitted request.

    `sibling` is the parent's id, the output's index and the number of outputs, for one of several outputs. A request
    for an embedding has no sampling parameters, and one with prompt embeddings no tokens.
    """
    params, tokens = request.sampling_params, request.prompt_token_ids
    operation = "chat" if _is_chat() else "text_completion" if params is not None else "embeddings"
    attributes = {
        names.GEN_AI_OPERATION: operation,
        names.REQUEST_PROMPT: prompt,
        names.REQUEST_PROMPT_TOKENS: list(tokens[:_MAX_PROMPT]) if tokens is not None else [],
        names.GEN_AI_INPUT_TOKENS: len(tokens) if tokens is not None else 0,
        names.REQUEST_PRIORITY: request.priority or None,
    }
    if params is not None:
        attributes |= {
            names.GEN_AI_MAX_TOKENS: params.max_tokens,
            names.GEN_AI_TEMPERATURE: float(params.temperature),
            names.GEN_AI_TOP_P: float(params.top_p),
            names.GEN_AI_TOP_K: params.top_k,
            names.GEN_AI_SEED: params.seed,
            names.GEN_AI_STOP: ([params.stop] if isinstance(params.stop, str) else list(params.stop or ())) or None,
        }
    return {
        "request_id": request.request_id,
        "parent": sibling,
        "delta": params is not None and params.output_kind.name == "DELTA",
        "attributes": attributes,
        "items": item_places(request),
    }


def _is_chat() -> bool:
    """Return whether a chat function of either engine is among the calls under way."""
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name in _CHAT_FUNCTIONS and frame.f_code.co_filename.endswith(_CHAT_FILES):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_MAX_FRAMES = 40
_CHAT_FUNCTIONS = (
    "chat",
    "chat_completion_full_generator",
    "chat_completion_stream_generator",
    "create_chat_completion",
    "create_responses",
    "responses_full_generator",
    "responses_stream_generator",
)
_CHAT_FILES = (
    *("llm.py", "serving_chat.py", "chat_completion/serving.py"),
    *("serving_responses.py", "responses/serving.py"),
)
"""Files of tracellm's engine and of vLLM, in 0.11.1 and in later versions."""


def submission_attributes(facts: Any) -> dict[str, Any]:
    """Return the attributes of the call that submits a request."""
    tokens = f"prompt_token_ids={facts['attributes'][names.GEN_AI_INPUT_TOKENS]} tokens"
    return {names.REQUEST_ID: facts["request_id"], names.ARGUMENTS: [f"request_id={facts['request_id']}", tokens]}


def _capture_request(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the engine, which may be older than the recording, the changed parameters, and the request's span."""
    eos = args[0].processor.generation_config_fields.get("eos_token_id")
    own_stops = frozenset([eos] if isinstance(eos, int) else eos or ())
    request = argument(args, kwargs, 1, "request")
    _, span_id = parse((request.trace_headers or {}).get(HEADER)) or ("", "")
    parameters = changed_parameters(request.sampling_params or request.pooling_params, own_stops)
    return capture_engine(args, kwargs, result), parameters, (request.request_id, span_id)


def _begin_submitted(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    if facts is None:
        return
    engine, parameters, (request_id, span_id) = facts
    learn_engine(tracker, span, engine, child_facts)
    submitted = child_facts.get("submitted")
    if submitted is None or span.error is not None:
        tracker.refused(request_id, span_id)
    elif tracker.is_open(request_id):  # it may have ended before this call did
        begin_request(tracker, span, submitted, parameters)


def begin_request(
    tracker: RequestTracker, span: Span, facts: dict[str, Any], parameters: tuple[list[str], list[str]]
) -> None:
    """Complete the request's span with the facts of its `submission`; `span` is the submitting call."""
    span.attributes.update(submission_attributes(facts))
    request = tracker.request(facts["request_id"], span.start_ns, submitted_by=span, delta=facts["delta"])
    request.attributes |= {name: value for name, value in facts["attributes"].items() if value is not None}
    if tracker.decode is not None and (token_ids := facts["attributes"][names.REQUEST_PROMPT_TOKENS]):
        request.attributes[names.REQUEST_PROMPT_TEXTS] = [*map(tracker.decode, token_ids[:_MAX_TEXTS])]
    request.attributes[names.REQUEST_PARAMS], request.attributes[names.REQUEST_TEXT_PARAMS] = parameters
    if facts["items"]:
        processed, *_ = facts["parent"] or (facts["request_id"],)
        cached = tracker.cached_items.get(processed, {})
        request.attributes |= item_attributes(facts["items"], tracker.items, cached)
    if facts["parent"] is not None:
        parent_id, index, n = facts["parent"]
        tracker.add_child(parent_id, index, facts["request_id"])
        request.attributes |= {names.REQUEST_PARENT: parent_id, names.REQUEST_INDEX: index, names.GEN_AI_CHOICES: n}


# -- arrival in the engine core ---------------------------------------------------------------------------------------


def _capture_arrived(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request_id = argument(args, kwargs, 1, "request").request_id
    return {names.ARGUMENTS: [f"request_id={request_id}"], names.RESULT: "Request"}


def _capture_queued(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request = argument(args, kwargs, 1, "request")
    return request.request_id, parse((request.trace_headers or {}).get(HEADER))


def _note_queued(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """Note the queued request here, in order with aborts, since an id may be reused after an abort."""
    if facts is not None:
        tracker.arrived(facts[0])
        if facts[1] is not None:
            tracker.link_remote(facts[0], *facts[1])


# -- outputs and the end ----------------------------------------------------------------------------------------------


def _outputs_of(request_outputs: Any) -> list[tuple[str, int, str, int, str | None, str | None]]:
    """Return request id for the caller, index, text, number of tokens, finish reason and stop of every output.

    The output of an embedding is one value and not a list; only its end is recorded.
    """
    found = []
    for output in request_outputs:
        if isinstance(output.outputs, list):
            found += [
                (
                    *(output.request_id, choice.index, choice.text, len(choice.token_ids), choice.finish_reason),
                    None if choice.finish_reason is None else _stopped_by(choice),
                )
                for choice in output.outputs
                if choice is not None
            ]
        elif output.finished:
            found.append((output.request_id, 0, "", 0, "stop", None))
    return found


def _stopped_by(choice: Any) -> str | None:
    """Return which kind of the request's own stops ended it: its `stop_reason` is the string, or the token's id."""
    reason = getattr(choice, "stop_reason", None)  # a capture must not fail for a field that it can do without
    if choice.finish_reason != "stop" or reason is None:
        return None
    return "stop_string" if isinstance(reason, str) else "stop_token"


def _capture_outputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    new = argument(args, kwargs, 1, "engine_core_outputs")
    ended = [(output.request_id, str(output.finish_reason)) for output in new if output.finish_reason is not None]
    ended += [(request_id, "stop") for request_id in result.reqs_to_abort]
    received = [(output.request_id, len(output.new_token_ids)) for output in new if output.new_token_ids]
    return len(new), _outputs_of(result.request_outputs), ended, received


def _outputs(facts: Any) -> dict[str, Any]:
    num_new, _, ended, _ = facts
    return {names.ARGUMENTS: [f"engine_core_outputs=list of {num_new}"], names.RESULT: f"{len(ended)} finished"}


def _note_outputs(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    _, outputs, ended, received = facts or (0, (), (), ())
    for request_id, num_tokens in received:
        tracker.received(request_id, num_tokens, span.end_ns)
    for request_id, reason in ended:
        tracker.engine_ended(request_id, span.end_ns, reason)
    for external_id, index, text, num_tokens, reason, stopped_by in outputs:
        request_id = tracker.request_of(external_id, index)
        if reason == "abort" and not tracker.is_open(request_id):
            continue
        tracker.generated(request_id, text, num_tokens, span.end_ns)
        if reason is not None:
            tracker.ended(request_id, span.end_ns, reason, stopped_by)


def _capture_put(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    output = argument(args, kwargs, 1, "output")
    return None if isinstance(output, Exception) else _outputs_of([output])


def _put(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: [f"output=RequestOutput of {facts[0][0]}" if facts else "output=RequestOutput"]}


def _note_put(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    _note_outputs(tracker, span, (0, facts or (), (), ()), child_facts)


def _capture_error(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return remember(argument(args, kwargs, 1, "error"))[:2], list(result)


def _note_error(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    if facts is not None:
        (kind, message), request_ids = facts
        for request_id in request_ids:
            tracker.failed(request_id, span.end_ns, f"{kind}: {message}" if tracker.text and message else kind)


def _note_aborted(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    for request_id in facts or ():
        if tracker.is_open(request_id):  # otherwise its reader got a last output, which ended it
            tracker.ended(request_id, span.end_ns, "abort")


def _capture_finished(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    ids = argument(args, kwargs, 1, "request_ids")
    if ids is None:  # a later vLLM: all requests
        ids = [request.request_id for request in result or () if hasattr(request, "request_id")]
    return [ids] if isinstance(ids, str) else list(ids)


def _finished(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: [f"request_ids=list of {len(facts)}"]}


def _note_finished(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    for request_id in facts or ():
        tracker.forget_remote(request_id)


_LLM = "entrypoints.llm:LLM"
_POOLING = "entrypoints.pooling.methods:PoolingMethods"
_LATER = "entrypoints.pooling.offline:PoolingOfflineMixin"
_capture_encode = partial(_capture_call, "prompts", "pooling_params")
_capture_score = partial(_capture_call, "data_1", "data_2")
_OFFLINE = "entrypoints.common.offline:OfflineInferenceMixin"
_INPUTS = "frontend.preprocess:InputPreprocessor"
_PROCESSOR = "frontend.processor:Processor"
_OUTPUTS = "frontend.output_processor:OutputProcessor"
_GRAMMARS = "core.structured_output.manager:StructuredOutputManager"
_GENERATION: dict[str, Any] = {
    "attributes": _call,
    "observe": _end_generated,
    "phase": "generation",
    "even_if_raises": True,
}
_SUBMITTED: dict[str, Any] = {
    "capture": _capture_request,
    "observe": _begin_submitted,
    "even_if_raises": True,
    "before": assign_request_span,
}
_ARRIVED: dict[str, Any] = {"record": _capture_arrived, "inherited": True}
_FINISHED: dict[str, Any] = {
    "capture": _capture_finished,
    "attributes": _finished,
    "observe": _note_finished,
    "shown_as": "Scheduler",
}

_SUBMISSION = (
    *plain("request", _LLM, "generate", capture=partial(_capture_call, "prompts", "sampling_params"), **_GENERATION),
    *plain("request", _LLM, "chat", capture=partial(_capture_call, "messages", "sampling_params"), **_GENERATION),
    *ours_only("request", _POOLING, "embed", "encode", capture=_capture_encode, shown_as="LLM", **_GENERATION),
    *ours_only("request", _POOLING, "score", capture=_capture_score, shown_as="LLM", **_GENERATION),
    *vllm_only(
        "request", "entrypoints.llm:LLM", "embed", "encode", later=_LATER, capture=_capture_encode, **_GENERATION
    ),
    *vllm_only("request", "entrypoints.llm:LLM", "score", later=_LATER, capture=_capture_score, **_GENERATION),
    *ours_only("request", "entrypoints.llm:", "apply_hf_chat_template"),
    *plain("request", _LLM, "_validate_and_add_requests", "_process_inputs", removed="0.32.0"),
    *plain("request", _LLM, "_add_request", "_run_engine", later=_OFFLINE),
    *plain(
        "request",
        _PROCESSOR,
        "process_inputs",
        later="v1.engine.input_processor:InputProcessor",
        observe=note_cached,
    ),
    *plain(
        "request",
        _PROCESSOR,
        "_validate_params",
        "_validate_model_input",
        later="v1.engine.input_processor:InputProcessor",
    ),
    *plain("request", _INPUTS, "preprocess", "_process_decoder_only_prompt", removed="0.32.0"),
    *plain("request", _INPUTS, "_prompt_to_llm_inputs", "_process_text", "_process_tokens", removed="0.32.0"),
    *ours_only("request", _INPUTS, "tokenize_prompt", record=_capture_tokenized),
    *plain("request", _INPUTS, "_process_multimodal", removed="0.32.0"),
    *ours_only("request", "frontend.llm_engine:LLMEngine", "_add_request", **_SUBMITTED),
    *ours_only("request", "frontend.async_llm:AsyncLLM", "_add_request", **_SUBMITTED),
    *ours_only(
        "request",
        _OUTPUTS,
        "add_request",
        capture=_capture_submitted,
        attributes=submission_attributes,
        gives=gives("submitted"),
        gives_to=("LLMEngine._add_request", "AsyncLLM._add_request"),
    ),
    *plain("request", "frontend.llm_engine:LLMEngine", "add_request"),
    *plain("request", "frontend.parallel_sampling:ParentRequest", "get_child_info"),
    *plain("step", "frontend.parallel_sampling:ParentRequest", "get_outputs"),
    *plain("request", "frontend.output_processor:RequestState", "from_new_request"),
    *plain("request", "frontend.logprobs:LogprobsProcessor", "from_new_request"),
    *plain("request", "frontend.detokenizer:IncrementalDetokenizer", "from_new_request"),
)

_ARRIVAL = (
    *plain("request", "ipc.core_client:InprocClient", "add_request"),
    *plain("request", "core.core:EngineCore", "preprocess_add_request", **_ARRIVED),
    *plain("request", "core.core:EngineCore", "add_request", inherited=True),
    *plain("request", "core.request:Request", "from_engine_core_request"),
    *plain("request", _GRAMMARS, "grammar_init"),
    *plain("request", _GRAMMARS, "_create_grammar", added="0.32.0"),
    *plain("request", "core.structured_output.backend_guidance:GuidanceBackend", "compile_grammar"),
    *ours_only(
        "request",
        "core.sched.scheduler:Scheduler",
        "add_request",
        shown_as="Scheduler",
        capture=_capture_queued,
        attributes=lambda facts: {names.ARGUMENTS: ["request=Request"]},
        observe=_note_queued,
    ),
    *ours_only("request", "core.sched.request_queue:*RequestQueue", "add_request", lifeline="Scheduler"),
)

_OUTPUT = (
    # Called once per step or output, but at the level of requests, since they record the ends of requests.
    *plain(
        "request", _OUTPUTS, "process_outputs", capture=_capture_outputs, attributes=_outputs, observe=_note_outputs
    ),
    *plain("request", "frontend.llm_engine:LLMEngine", "abort_request"),
    *plain(
        "request",
        _OUTPUTS,
        "abort_requests",
        capture=lambda args, kwargs, result: list(result),
        attributes=lambda ids: {names.RESULT: f"{len(ids)} aborted"},
        observe=_note_aborted,
    ),
    *plain("request", "core.core:EngineCore", "abort_requests", inherited=True),
    *ours_only(
        "request",
        _OUTPUTS,
        "propagate_error",
        capture=_capture_error,
        attributes=lambda facts: {names.RESULT: f"{len(facts[1])} requests failed"},
        observe=_note_error,
    ),
    *plain(
        "request",
        "frontend.output_collector:RequestOutputCollector",
        "put",
        capture=_capture_put,
        attributes=_put,
        observe=_note_put,
    ),
    *ours_only("request", "core.sched.scheduler:Scheduler", "finish_requests", **_FINISHED),
    *vllm_only("request", "v1.core.sched.scheduler:Scheduler", "finish_requests", **_FINISHED),
)

ENTRIES = (*_SUBMISSION, *_ARRIVAL, *_OUTPUT)
