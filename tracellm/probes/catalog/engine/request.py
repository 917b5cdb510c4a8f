"""A request's way in, from the user's line to the scheduler's queue.

Worth telling: who called with what, and each request's life: its prompt, its parameters. The life is a span of its own
(`llm_request`), which the tracker puts together; outputs.py tells what was generated, and why it ended.
"""

from functools import partial
from types import CodeType
from typing import Any

from tracellm.probes.catalog.engine.outputs import outputs_of
from tracellm.probes.catalog.helpers import argument, called_by, capture_engine, inherited, learn_engine, plain
from tracellm.probes.catalog.request_context import ADDED, ARRIVES, give_place
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import changed_parameters
from tracellm.probes.context.traceparent import HEADER, parse
from tracellm.probes.wrapping.call_site import caller, caller_attributes
from tracellm.probes.wrapping.probe import Entry
from tracellm.probes.wrapping.summary import brief, written
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]

_LONGEST_PROMPT = 512  # token ids of a prompt that are kept

# -- generate and chat ------------------------------------------------------------------------------------------------


def _capture_call(first: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """What is told of `generate` and `chat`; `first` is the name of what is generated from."""
    params = argument(args, kwargs, 2, "sampling_params")
    passed = [(first, brief(argument(args, kwargs, 1, first)))]
    passed += [("sampling_params", brief(params))] if params is not None else []
    return caller(), passed, brief(result), outputs_of(result or ())


def _generate(facts: Any) -> dict[str, Any]:
    where, passed, result, _ = facts
    return {**caller_attributes(where), **written(passed, result)}


def _note_generated(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    """Ends the requests of a recording that does not go down to single steps."""
    for known_as, index, text, num_tokens, reason in facts[3] if facts is not None else ():
        request_id = tracker.request_of(known_as, index)
        if tracker.is_open(request_id):
            tracker.generated(request_id, text, num_tokens, span.end_ns)
            tracker.ended(request_id, span.end_ns, reason)


# -- a request begins -------------------------------------------------------------------------------------------------


def _capture_submitted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request, prompt = argument(args, kwargs, 1, "request"), argument(args, kwargs, 2, "prompt")
    parent = argument(args, kwargs, 3, "parent_req")
    known_by = None if parent is None else (parent.request_id, argument(args, kwargs, 4, "request_index"), parent.n)
    return submission(request, prompt, known_by)


def submission(request: Any, prompt: Any, parent: tuple[str, int, int] | None) -> dict[str, Any]:
    """What is told of a request; of one of several outputs its `parent`'s name, the output's number, how many are.

    A request to a model that only embeds has no sampling parameters, and one that brings embeddings no tokens.
    """
    params, tokens = request.sampling_params, request.prompt_token_ids
    told = {
        "request_id": request.request_id,
        "prompt": prompt,
        "prompt_tokens": list(tokens[:_LONGEST_PROMPT]) if tokens is not None else [],
        "num_prompt_tokens": len(tokens) if tokens is not None else 0,
        "priority": request.priority,
        "parent": parent,
        "delta": False,
        "operation": "chat" if called_by(_is_chat) else "text_completion" if params is not None else "embeddings",
    }
    if params is None:
        return told
    return told | {
        "max_tokens": params.max_tokens,
        "temperature": float(params.temperature),
        "top_p": float(params.top_p),
        "top_k": params.top_k,
        "seed": params.seed,
        "stop": [params.stop] if isinstance(params.stop, str) else list(params.stop or ()),
        "delta": params.output_kind.name == "DELTA",
    }


def _is_chat(code: CodeType) -> bool:
    return code.co_filename.endswith(_CHAT_FILES) and code.co_name in _CHATS


_CHATS = ("chat", "chat_completion_full_generator", "chat_completion_stream_generator", "create_chat_completion")
_CHAT_FILES = ("llm.py", "serving_chat.py", "chat_completion/serving.py")
"""Ours, which are vLLM 0.11.1's, and later ones of vLLM's."""


def _submitted(facts: Any) -> dict[str, Any]:
    tokens = f"prompt_token_ids={facts['num_prompt_tokens']} tokens"
    return {names.REQUEST_ID: facts["request_id"], names.ARGUMENTS: [f"request_id={facts['request_id']}", tokens]}


def _give_submitted(facts: Any) -> dict[str, Any]:
    return {"submitted": facts}


def _capture_request(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """The engine, which may have been made before this recording began, what the user chose for the request, and the
    span of its life."""
    eos = args[0].processor.generation_config_fields.get("eos_token_id")
    own_stops = frozenset([eos] if isinstance(eos, int) else eos or ())
    request = argument(args, kwargs, 1, "request")
    life = parse((request.trace_headers or {}).get(HEADER))
    parameters = changed_parameters(request.sampling_params, own_stops)
    return capture_engine(args, kwargs, result), parameters, (request.request_id, *(life or ("", "")))


def _begin_request(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is None:
        return
    engine, parameters, (request_id, _, life) = facts
    learn_engine(tracker, span, engine, given)
    told = given.get("submitted")
    if told is None or span.error is not None:
        tracker.refused(request_id, life)
        return
    if tracker.is_open(request_id):  # else it ended before its submission had
        begin_life(tracker, span, told, parameters)


def begin_life(
    tracker: RequestTracker, span: Span, told: dict[str, Any], parameters: tuple[list[str], list[str]]
) -> None:
    """Tell of a request what its submission, `span`, knows, as `capture_submitted` told it."""
    span.attributes.update(_submitted(told))
    request = tracker.request(told["request_id"], span.start_ns, submitted_by=span, in_pieces=told["delta"])
    request.attributes |= {
        names.GEN_AI_OPERATION: told["operation"],
        names.REQUEST_PROMPT_TOKENS: told["prompt_tokens"],
        names.GEN_AI_INPUT_TOKENS: told["num_prompt_tokens"],
    }
    request.attributes[names.REQUEST_PARAMS], request.attributes[names.REQUEST_TEXT_PARAMS] = parameters
    if told["priority"]:
        request.attributes[names.REQUEST_PRIORITY] = told["priority"]
    if told["parent"] is not None:
        parent_id, index, n = told["parent"]
        tracker.adopt(parent_id, index, told["request_id"])
        request.attributes |= {names.REQUEST_PARENT: parent_id, names.REQUEST_INDEX: index, names.GEN_AI_CHOICES: n}
    for name, key in (
        (names.REQUEST_PROMPT, "prompt"),
        (names.GEN_AI_MAX_TOKENS, "max_tokens"),
        (names.GEN_AI_TEMPERATURE, "temperature"),
        (names.GEN_AI_TOP_P, "top_p"),
        (names.GEN_AI_TOP_K, "top_k"),
        (names.GEN_AI_SEED, "seed"),
        (names.GEN_AI_STOP, "stop"),
    ):
        if told.get(key) not in (None, []):
            request.attributes[name] = told[key]


# -- text becomes tokens: the text itself is told by the request's span -----------------------------------------------


def _capture_tokenized(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return len(argument(args, kwargs, 1, "text", "")), len(result)


def _tokenized(facts: Any) -> dict[str, Any]:
    characters, tokens = facts
    return {names.ARGUMENTS: [f"text=str of {characters}"], names.RESULT: f"{tokens} tokens"}


_LLM = "tracellm.engine.entrypoints.llm:LLM"
_OUTPUT_PROCESSOR = "tracellm.engine.frontend.output_processor:OutputProcessor"

ENTRIES = (
    *(
        Entry(
            f"{_LLM}.{method}",
            "request",
            partial(_capture_call, first),
            _generate,
            observe=_note_generated,
            phase="generation",
            even_if_raises=True,
        )
        for method, first in (("generate", "prompts"), ("chat", "messages"))
    ),
    *plain("request", "entrypoints.llm", "apply_hf_chat_template", "LLM._validate_and_add_requests"),
    *plain("request", "entrypoints.llm", "LLM._add_request", "LLM._process_inputs", "LLM._run_engine"),
    *plain("request", "frontend.processor", "Processor.process_inputs"),
    *plain("request", "frontend.processor", "Processor._validate_params", "Processor._validate_model_input"),
    *plain(
        "request",
        "frontend.preprocess",
        "InputPreprocessor.preprocess",
        "InputPreprocessor._process_decoder_only_prompt",
    ),
    *plain(
        "request", "frontend.preprocess", "InputPreprocessor._prompt_to_llm_inputs", "InputPreprocessor._process_text"
    ),
    *plain("request", "frontend.preprocess", "InputPreprocessor._process_tokens"),
    Entry(
        "tracellm.engine.frontend.preprocess:InputPreprocessor.tokenize_prompt",
        "request",
        _capture_tokenized,
        _tokenized,
    ),
    *(
        Entry(
            f"tracellm.engine.{engine}._add_request",
            "request",
            _capture_request,
            observe=_begin_request,
            even_if_raises=True,
            before=give_place,
        )
        for engine in ("frontend.llm_engine:LLMEngine", "frontend.async_llm:AsyncLLM")
    ),
    Entry(
        _OUTPUT_PROCESSOR + ".add_request",
        "request",
        _capture_submitted,
        _submitted,
        gives=_give_submitted,
        gives_to=("LLMEngine._add_request", "AsyncLLM._add_request"),
    ),
    *plain("request", "frontend.llm_engine", "LLMEngine.add_request"),
    *plain("request", "frontend.parallel_sampling", "ParentRequest.get_child_info"),
    *plain("step", "frontend.parallel_sampling", "ParentRequest.get_outputs"),
    *plain("request", "frontend.output_processor", "RequestState.from_new_request"),
    *plain("request", "frontend.logprobs", "LogprobsProcessor.from_new_request"),
    *plain("request", "frontend.detokenizer", "IncrementalDetokenizer.from_new_request"),
    *plain("request", "ipc.core_client", "InprocClient.add_request"),
    ARRIVES,
    *inherited("request", "core.core", "EngineCore.add_request"),
    *plain("request", "core.request", "Request.from_engine_core_request"),
    *plain("request", "core.structured_output.manager", "StructuredOutputManager.grammar_init"),
    *plain("request", "core.structured_output.manager", "StructuredOutputManager._create_grammar"),
    *plain("request", "core.structured_output.backend_guidance", "GuidanceBackend.compile_grammar"),
    ADDED,
    Entry("tracellm.engine.core.sched.request_queue:*RequestQueue.add_request", "request", lifeline="Scheduler"),
)
