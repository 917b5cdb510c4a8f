"""A request to a vLLM on its way from the user's line to the scheduler's queue.

vLLM has no one function that every request goes through in the front half's engines, but both give it to
`OutputProcessor.add_request`: there its life begins (`llm_request`), and it gets its place in the recording.

Of versions that differ: 0.11.1 has a Processor with an InputPreprocessor, later ones an InputProcessor, and a Renderer
that makes tokens of texts before that.

vLLM: vllm/entrypoints/llm.py, vllm/v1/engine/llm_engine.py, processor.py or input_processor.py, vllm/inputs/
preprocess.py or vllm/renderers/.
"""

from functools import partial
from typing import Any

from tracellm.probes.catalog.engine import request as ours
from tracellm.probes.catalog.engine.request import begin_life, submission
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.request_context import ADDED, ARRIVES
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import changed_parameters
from tracellm.probes.catalog.token_texts import learn_tokenizer, tokenizer_facts
from tracellm.probes.catalog.vllm.entries import at, like, plain, users_line
from tracellm.probes.catalog.vllm.outputs import outputs_of
from tracellm.probes.catalog.vllm.request_context import callers_name, give_place, own_stops, place_given
from tracellm.probes.wrapping.probe import Entry
from tracellm.probes.wrapping.summary import brief
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]

# -- generate and chat ------------------------------------------------------------------------------------------------


def _capture_call(first: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """What is told of `generate` and `chat`; `first` is the name of what is generated from."""
    params = argument(args, kwargs, 2, "sampling_params")
    passed = [(first, brief(argument(args, kwargs, 1, first)))]
    passed += [("sampling_params", brief(params))] if params is not None else []
    return users_line(), passed, brief(result), outputs_of(result or ())


# -- a request begins -------------------------------------------------------------------------------------------------


def _capture_submitted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request, prompt = argument(args, kwargs, 1, "request"), argument(args, kwargs, 2, "prompt")
    parent, params, processor = argument(args, kwargs, 3, "parent_req"), request.sampling_params, args[0]
    known_by = None
    if parent is not None:
        known_by = callers_name(parent), int(argument(args, kwargs, 4, "request_index", 0)), parent.n
    return (
        submission(request, prompt, known_by),
        ([], []) if params is None else _chosen(params, own_stops(processor)),
        callers_name(request),
        tokenizer_facts(processor.tokenizer),
        place_given(request),
    )


def _chosen(params: Any, stops: frozenset[int]) -> tuple[list[str], list[str]]:
    """The parameters that were chosen: not what vLLM has put in for those that were left open."""
    values, texts = changed_parameters(params, stops)
    return [value for value in values if value != "watermarking=False"], texts


def _submitted(facts: Any) -> dict[str, Any]:
    told, *_ = facts
    tokens = f"prompt_token_ids={told['num_prompt_tokens']} tokens"
    return {names.REQUEST_ID: told["request_id"], names.ARGUMENTS: [f"request_id={told['request_id']}", tokens]}


def _begin_request(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is None:
        return
    told, parameters, known_as, tokenizer, place = facts
    if span.error is not None:
        tracker.refused(told["request_id"], "" if place is None else place[1])
        return
    learn_tokenizer(tracker, tokenizer)
    if not tracker.is_open(told["request_id"]):  # ended before its submission had
        return
    begin_life(tracker, span, told, parameters)
    if known_as != told["request_id"]:
        life = tracker.request(told["request_id"], span.start_ns)
        life.attributes[names.GEN_AI_RESPONSE_ID] = known_as
        if told["parent"] is None:
            tracker.adopt(known_as, 0, told["request_id"])


# -- it arrives in the engine core ------------------------------------------------------------------------------------


def _capture_added(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request = argument(args, kwargs, 1, "request")
    return request.request_id, place_given(request)


_LLM = "entrypoints.llm:LLM"
_OFFLINE = "entrypoints.common.offline:OfflineInferenceMixin"
_PREPROCESSING = ("preprocess", "_process_decoder_only_prompt", "_prompt_to_llm_inputs", "_process_text")

ENTRIES = (
    *(
        like(ours.ENTRIES, f"LLM.{method}", f"{_LLM}.{method}", capture=partial(_capture_call, first))
        for method, first in (("generate", "prompts"), ("chat", "messages"))
    ),
    *plain(
        "request", "entrypoints.llm", "LLM.preprocess_chat", "LLM._process_inputs", "LLM._validate_and_add_requests"
    ),
    *(
        Entry(at(f"{_LLM}.{one}"), "request", other_targets=(at(f"{_OFFLINE}.{one}"),))
        for one in ("_add_request", "_run_engine")
    ),
    *plain("request", "entrypoints.common.offline", "OfflineInferenceMixin._preprocess_chat"),
    *plain("request", "entrypoints.common.offline", "OfflineInferenceMixin._preprocess_cmpl"),
    *plain("request", "entrypoints.common.offline", "OfflineInferenceMixin._render_and_add_requests"),
    *(
        Entry(
            at(f"v1.engine.processor:Processor.{method}"),
            "request",
            other_targets=(at(f"v1.engine.input_processor:InputProcessor.{method}"),),
        )
        for method in ("process_inputs", "_validate_params", "_validate_model_input")
    ),
    *plain("request", "v1.engine.input_processor", "InputProcessor.assign_request_id"),
    *plain("request", "inputs.preprocess", *(f"InputPreprocessor.{method}" for method in _PREPROCESSING)),
    *plain("request", "inputs.preprocess", "InputPreprocessor._process_tokens"),
    *plain("request", "inputs.preprocess", "InputPreprocessor._tokenize_prompt"),
    *plain("request", "renderers.base", "BaseRenderer.render_cmpl", "BaseRenderer.render_chat"),
    *plain("request", "renderers.base", "BaseRenderer.tokenize_prompt", "BaseRenderer.process_for_engine"),
    *plain("request", "renderers.hf", "HfRenderer.render_messages"),
    *plain("request", "v1.engine.llm_engine", "LLMEngine.add_request"),
    Entry(
        at("v1.engine.output_processor:OutputProcessor.add_request"),
        "request",
        _capture_submitted,
        _submitted,
        observe=_begin_request,
        even_if_raises=True,
        before=give_place,
    ),
    *plain("request", "v1.engine.parallel_sampling", "ParentRequest.get_child_info"),
    *plain("step", "v1.engine.parallel_sampling", "ParentRequest.get_outputs"),
    *plain("request", "v1.engine.output_processor", "RequestState.from_new_request"),
    *plain("request", "v1.engine.logprobs", "LogprobsProcessor.from_new_request"),
    *plain("request", "v1.engine.detokenizer", "IncrementalDetokenizer.from_new_request"),
    *plain("request", "v1.engine.core_client", "InprocClient.add_request"),
    like((ARRIVES,), "EngineCore.preprocess_add_request", "v1.engine.core:EngineCore.preprocess_add_request"),
    *plain("request", "v1.engine.core", "EngineCore.add_request", span_name="EngineCore.add_request"),
    *plain("request", "v1.request", "Request.from_engine_core_request"),
    *plain("request", "v1.structured_output", "StructuredOutputManager.grammar_init"),
    *plain("request", "v1.structured_output", "StructuredOutputManager._create_grammar"),
    *plain("request", "v1.structured_output.backend_xgrammar", "XgrammarBackend.compile_grammar"),
    *plain("request", "v1.structured_output.backend_guidance", "GuidanceBackend.compile_grammar"),
    like(
        (ADDED,),
        "Scheduler.add_request",
        "v1.core.sched.scheduler:Scheduler.add_request",
        capture=_capture_added,
    ),
    *(
        Entry(at(f"v1.core.sched.request_queue:{kind}RequestQueue.add_request"), "request", lifeline="Scheduler")
        for kind in ("FCFS", "Priority")
    ),
)
