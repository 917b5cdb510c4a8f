"""Short diagram of one chat request through both processes, in docs/server.md and docs/vllm.md."""

from collections.abc import Mapping

from msgspec.structs import replace

from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["one_request"]

_SHORT = {
    "OpenAIServingChat": ("create_chat_completion", "_preprocess_chat", "_process_inputs"),
    "AsyncLLM": ("generate", "add_request"),
    "Processor": ("process_inputs",),
    "OnlineRenderer": ("render_chat", "preprocess_chat"),
    "InputProcessor": ("process_inputs",),
    "OutputProcessor": ("add_request", "process_outputs"),
    "AsyncMPClient": ("add_request_async",),
    "MsgpackEncoder": ("encode", "encode_into"),
    "MsgpackDecoder": ("decode",),
    "EngineCoreProc": ("_handle_client_request", "_process_engine_step", "step_fn"),
    "Scheduler": ("add_request", "schedule", "update_from_output"),
    "UniProcExecutor": ("execute_model", "sample_tokens"),
    "MultiprocExecutor": ("execute_model", "sample_tokens"),
}
"""Methods to draw, by class; some classes have other names in some versions of vLLM."""


_BEFORE = {
    "api_server.py": ("run_server",),
    "AsyncLLM": ("__init__", "output_handler"),
    "AsyncMPClient": ("launch_core_engines", "process_outputs_socket"),
    "EngineCoreProc": ("run_engine_core", "process_input_sockets", "process_output_sockets", "run_busy_loop"),
}
"""Calls of the start, and calls that wait from then on."""


_NONE: Mapping[str, tuple[str, ...]] = {}


def one_request(trace: Trace, deeper: Mapping[str, tuple[str, ...]] = _NONE) -> Trace:
    """Return the calls from the HTTP request to its first outputs; later steps repeat them.

    The caller of a call is the nearest one that is drawn. `deeper`: further methods of the step by class, drawn in the
    step's process only.
    """
    http = next(span for span in trace.spans if span.attributes.get(names.HTTP_METHOD) == "POST")
    step = trace.named(STEP_SPAN)[0]
    outputs = trace.named("OutputProcessor.process_outputs")[0]
    executors = ("UniProcExecutor", "MultiprocExecutor")

    def is_kept(span: Span) -> bool:
        if span is http or span.method in _BEFORE.get(span.lifeline, ()):
            return True
        end = step.end_ns if span.lifeline in ("EngineCoreProc", "Scheduler", *executors, *deeper) else outputs.end_ns
        kept = _SHORT.get(span.lifeline) or (deeper.get(span.lifeline, ()) if span.process is step.process else ())
        return span.method in kept and http.start_ns <= span.start_ns <= end

    kept = {span.span_id for span in trace.spans if is_kept(span)}
    short = []
    for span in trace.spans:
        if span.span_id in kept:
            above = trace.parent(span)
            while above is not None and above.span_id not in kept:
                above = trace.parent(above)
            short.append(replace(span, parent_span_id=above.span_id if above else None))
    return Trace(short, trace.processes)
