"""A request's way in, from the user's line to the scheduler's queue, and its end.

Worth telling: who called with what, and each request's life: its prompt, its parameters, what was generated and why it
ended. The life is a span of its own (`llm_request`), which the ledger puts together.
"""

from typing import Any

from tracellm.probes.brief import brief, written
from tracellm.probes.caller import caller, caller_attributes
from tracellm.probes.catalog.helpers import argument, called_by, plain
from tracellm.probes.ledger import Ledger
from tracellm.probes.spec import Capture, Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]

_LONGEST_PROMPT = 512  # token ids of a prompt that are kept

# -- generate and chat ------------------------------------------------------------------------------------------------


def _capture_call(first: str) -> Capture:
    """What is told of `generate` and `chat`; `first` is the name of what is generated from."""

    def capture(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        params = argument(args, kwargs, 2, "sampling_params")
        passed = [(first, brief(argument(args, kwargs, 1, first)))]
        passed += [("sampling_params", brief(params))] if params is not None else []
        return caller(), passed, brief(result), _outputs_of(result or ())

    return capture


def _generate(facts: Any) -> dict[str, Any]:
    where, passed, result, _ = facts
    return {**caller_attributes(where), **written(passed, result)}


def _note_generated(ledger: Ledger, span: Span, facts: Any, given: dict[str, Any]) -> None:
    """Ends the requests of a recording that does not go down to single steps."""
    for request_id, text, num_tokens, reason in facts[3] if facts is not None else ():
        if ledger.is_open(request_id):
            ledger.generated(request_id, text, num_tokens, span.end_ns)
            ledger.ended(request_id, span.end_ns, reason)


def _outputs_of(request_outputs: Any) -> list[tuple[str, str, int, str | None]]:
    return [
        (output.request_id, one.text, len(one.token_ids), one.finish_reason)
        for output in request_outputs
        for one in output.outputs
    ]


# -- a request begins -------------------------------------------------------------------------------------------------


def _capture_submitted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    request, prompt = argument(args, kwargs, 1, "request"), argument(args, kwargs, 2, "prompt")
    params = request.sampling_params
    is_chat = called_by(lambda code: code.co_name == "chat" and code.co_filename.endswith("llm.py"))
    return {
        "request_id": request.request_id,
        "prompt": prompt,
        "prompt_tokens": request.prompt_token_ids[:_LONGEST_PROMPT],
        "num_prompt_tokens": len(request.prompt_token_ids),
        "max_tokens": params.max_tokens,
        "temperature": float(params.temperature),
        "top_p": float(params.top_p),
        "top_k": params.top_k,
        "seed": params.seed,
        "stop": list(params.stop or ()),
        "delta": params.output_kind.name == "DELTA",
        "operation": "chat" if is_chat else "text_completion",
    }


def _submitted(facts: Any) -> dict[str, Any]:
    tokens = f"prompt_token_ids={facts['num_prompt_tokens']} tokens"
    return {names.REQUEST_ID: facts["request_id"], names.ARGUMENTS: [f"request_id={facts['request_id']}", tokens]}


def _give_submitted(facts: Any) -> dict[str, Any]:
    return {"submitted": facts}


def _capture_request_id(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return argument(args, kwargs, 1, "request_id")


def _begin_request(ledger: Ledger, span: Span, facts: Any, given: dict[str, Any]) -> None:
    told = given.get("submitted")
    if told is None or span.error is not None:
        return
    span.attributes.update(_submitted(told))
    request = ledger.request(told["request_id"], span.start_ns, submitted_by=span, in_pieces=told["delta"])
    request.attributes |= {
        names.GEN_AI_OPERATION: told["operation"],
        names.REQUEST_PROMPT_TOKENS: told["prompt_tokens"],
        names.GEN_AI_INPUT_TOKENS: told["num_prompt_tokens"],
    }
    for name, key in (
        (names.REQUEST_PROMPT, "prompt"),
        (names.GEN_AI_MAX_TOKENS, "max_tokens"),
        (names.GEN_AI_TEMPERATURE, "temperature"),
        (names.GEN_AI_TOP_P, "top_p"),
        (names.GEN_AI_TOP_K, "top_k"),
        (names.GEN_AI_SEED, "seed"),
        (names.GEN_AI_STOP, "stop"),
    ):
        if told[key] not in (None, []):
            request.attributes[name] = told[key]


# -- a request goes on and ends ---------------------------------------------------------------------------------------


def _capture_outputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    new = argument(args, kwargs, 1, "engine_core_outputs")
    return len(new), _outputs_of(result.request_outputs)


def _outputs(facts: Any) -> dict[str, Any]:
    num_new, outputs = facts
    finished = sum(reason is not None for *_, reason in outputs)
    return {names.ARGUMENTS: [f"engine_core_outputs=list of {num_new}"], names.RESULT: f"{finished} finished"}


def _note_outputs(ledger: Ledger, span: Span, facts: Any, given: dict[str, Any]) -> None:
    for request_id, text, num_tokens, reason in facts[1] if facts is not None else ():
        ledger.generated(request_id, text, num_tokens, span.end_ns)
        if reason is not None:
            ledger.ended(request_id, span.end_ns, reason)


def _capture_aborted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return list(result)


def _aborted(facts: Any) -> dict[str, Any]:
    return {names.RESULT: f"{len(facts)} aborted"}


def _note_aborted(ledger: Ledger, span: Span, facts: Any, given: dict[str, Any]) -> None:
    for request_id in facts or ():
        ledger.ended(request_id, span.end_ns, "abort")


# -- text becomes tokens: the text itself is told by the request's span -----------------------------------------------


def _capture_tokenized(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return len(argument(args, kwargs, 1, "text", "")), len(result)


def _tokenized(facts: Any) -> dict[str, Any]:
    characters, tokens = facts
    return {names.ARGUMENTS: [f"text=str of {characters}"], names.RESULT: f"{tokens} tokens"}


_LLM = "tracellm.engine.entrypoints.llm:LLM"
_OUTPUT_PROCESSOR = "tracellm.engine.output_processor:OutputProcessor"

ENTRIES = (
    *(
        Entry(
            f"{_LLM}.{method}",
            "request",
            _capture_call(first),
            _generate,
            observe=_note_generated,
            phase="generation",
            even_if_raises=True,
        )
        for method, first in (("generate", "prompts"), ("chat", "messages"))
    ),
    *plain("request", "entrypoints.llm", "apply_hf_chat_template", "LLM._validate_and_add_requests"),
    *plain("request", "entrypoints.llm", "LLM._add_request", "LLM._process_inputs", "LLM._run_engine"),
    *plain("request", "processor", "Processor.process_inputs"),
    *plain("request", "processor", "Processor._validate_params", "Processor._validate_model_input"),
    *plain("request", "preprocess", "InputPreprocessor.preprocess", "InputPreprocessor._process_decoder_only_prompt"),
    *plain("request", "preprocess", "InputPreprocessor._prompt_to_llm_inputs", "InputPreprocessor._process_text"),
    *plain("request", "preprocess", "InputPreprocessor._process_tokens"),
    Entry("tracellm.engine.preprocess:InputPreprocessor._tokenize_prompt", "request", _capture_tokenized, _tokenized),
    Entry("tracellm.engine.llm_engine:LLMEngine.add_request", "request", _capture_request_id, observe=_begin_request),
    Entry(
        _OUTPUT_PROCESSOR + ".add_request",
        "request",
        _capture_submitted,
        _submitted,
        gives=_give_submitted,
        gives_to="LLMEngine.add_request",
    ),
    *plain("request", "output_processor", "RequestState.from_new_request"),
    *plain("request", "detokenizer", "IncrementalDetokenizer.from_new_request"),
    *plain("request", "core_client", "InprocClient.add_request"),
    *plain("request", "core", "EngineCore.preprocess_add_request", "EngineCore.add_request"),
    *plain("request", "request", "Request.from_engine_core_request"),
    *plain("request", "sched.scheduler", "Scheduler.add_request"),
    Entry(_OUTPUT_PROCESSOR + ".process_outputs", "step", _capture_outputs, _outputs, observe=_note_outputs),
    *plain("request", "llm_engine", "LLMEngine.abort_request"),
    Entry(_OUTPUT_PROCESSOR + ".abort_requests", "request", _capture_aborted, _aborted, observe=_note_aborted),
    *plain("request", "core", "EngineCore.abort_requests"),
    *plain("request", "sched.scheduler", "Scheduler.finish_requests"),
)
