"""The spans of finished requests that an engine with `otlp_traces_endpoint` sends to an OpenTelemetry collector.

A request ends in `OutputProcessor.process_outputs`, which then calls `do_tracing`; the SDK sends the spans in
batches, from a thread of its own. It needs `tracellm[otel]`, imported only with an endpoint. A recording
(`--explain`) has spans of its own, and more of them; see docs/opentelemetry.md.

vLLM: vllm/tracing.py. Left out: the tracer provider is not made the program's global one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineError, shorten

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

    from tracellm.engine.frontend.output_processor import RequestState
    from tracellm.engine.frontend.pooling import PoolingRequestState
    from tracellm.engine.metrics.stats import IterationStats

__all__ = ["TRACER_NAME", "SpanAttributes", "do_tracing", "extract_trace_context", "init_tracer"]

TRACER_NAME = "vllm.llm_engine"
"""Name of the tracer; it is vLLM's, so backends recognize the spans."""

_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


class SpanAttributes:
    """Names of the attributes of a span. Durations are in seconds."""

    GEN_AI_USAGE_COMPLETION_TOKENS = "gen_ai.usage.completion_tokens"
    GEN_AI_USAGE_PROMPT_TOKENS = "gen_ai.usage.prompt_tokens"
    GEN_AI_REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
    GEN_AI_REQUEST_TOP_P = "gen_ai.request.top_p"
    GEN_AI_REQUEST_TEMPERATURE = "gen_ai.request.temperature"
    GEN_AI_REQUEST_ID = "gen_ai.request.id"
    GEN_AI_REQUEST_N = "gen_ai.request.n"
    GEN_AI_LATENCY_TIME_IN_QUEUE = "gen_ai.latency.time_in_queue"
    GEN_AI_LATENCY_TIME_TO_FIRST_TOKEN = "gen_ai.latency.time_to_first_token"
    GEN_AI_LATENCY_E2E = "gen_ai.latency.e2e"
    GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL = "gen_ai.latency.time_in_model_prefill"
    GEN_AI_LATENCY_TIME_IN_MODEL_DECODE = "gen_ai.latency.time_in_model_decode"
    GEN_AI_LATENCY_TIME_IN_MODEL_INFERENCE = "gen_ai.latency.time_in_model_inference"


def init_tracer(instrumenting_module_name: str, otlp_traces_endpoint: str | None) -> Tracer | None:
    """Return a tracer whose spans are sent to this address, the last ones when the program ends; None without one.

    Raises:
        EngineError: OpenTelemetry is not installed, or its exporter for the protocol.
    """
    if otlp_traces_endpoint is None:
        return None
    exporter = get_span_exporter(otlp_traces_endpoint)
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider.get_tracer(instrumenting_module_name)


def get_span_exporter(endpoint: str) -> SpanExporter:
    """Return the official exporter for the protocol in the environment: `grpc` (default) or `http/protobuf`.

    Raises:
        EngineError: the exporter is not installed, or there is none for the protocol.
    """
    protocol = os.environ.get(_PROTOCOL, "grpc")
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

            return GrpcExporter(endpoint=endpoint)
        if protocol == "http/protobuf":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

            return HttpExporter(endpoint=endpoint)
    except ImportError as error:
        extra = "otel-grpc" if protocol == "grpc" else "otel"
        other = f", or set {_PROTOCOL}=http/protobuf, which needs tracellm[otel]" if protocol == "grpc" else ""
        raise EngineError(
            "OpenTelemetry is not available. Unable to configure 'otlp_traces_endpoint'. Ensure OpenTelemetry packages "
            f"are installed: pip install 'tracellm[{extra}]'{other}. ({error})"
        ) from None
    raise EngineError(
        f"Unsupported OTLP protocol {shorten(protocol)} is configured: set {_PROTOCOL} to grpc or http/protobuf."
    )


def extract_trace_context(headers: Mapping[str, str] | None) -> Context:
    """Return the context in the `traceparent` and `tracestate` of a request; empty without them."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(headers or {})


def do_tracing(
    tracer: Tracer,
    state: RequestState | PoolingRequestState,
    trace_headers: Mapping[str, str] | None,
    iteration_stats: IterationStats,
) -> None:
    """Make the span of a finished request, from its arrival until now.

    vLLM: vllm/v1/engine/output_processor.py::OutputProcessor.do_tracing.
    """
    from opentelemetry.trace import SpanKind

    stats = state.stats
    assert stats is not None, "the engine keeps statistics if it has a tracer"
    attributes: dict[str, Any] = {
        SpanAttributes.GEN_AI_LATENCY_TIME_TO_FIRST_TOKEN: stats.first_token_latency,
        SpanAttributes.GEN_AI_LATENCY_E2E: iteration_stats.iteration_timestamp - stats.arrival_time,
        SpanAttributes.GEN_AI_LATENCY_TIME_IN_QUEUE: stats.queued_time,
        SpanAttributes.GEN_AI_USAGE_PROMPT_TOKENS: len(state.prompt_token_ids),
        SpanAttributes.GEN_AI_USAGE_COMPLETION_TOKENS: stats.num_generation_tokens,
        SpanAttributes.GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL: stats.prefill_time,
        SpanAttributes.GEN_AI_LATENCY_TIME_IN_MODEL_DECODE: stats.decode_time,
        SpanAttributes.GEN_AI_LATENCY_TIME_IN_MODEL_INFERENCE: stats.inference_time,
        SpanAttributes.GEN_AI_REQUEST_ID: state.request_id,
    }
    parameters = {
        SpanAttributes.GEN_AI_REQUEST_TOP_P: state.top_p,
        SpanAttributes.GEN_AI_REQUEST_MAX_TOKENS: state.max_tokens_param,
        SpanAttributes.GEN_AI_REQUEST_TEMPERATURE: state.temperature,
        SpanAttributes.GEN_AI_REQUEST_N: state.n,
    }
    attributes |= {name: value for name, value in parameters.items() if value}  # as in vLLM, not a temperature of 0
    span = tracer.start_span(
        "llm_request",
        context=extract_trace_context(trace_headers),
        kind=SpanKind.SERVER,
        attributes=attributes,
        start_time=int(stats.arrival_time * 1e9),
    )
    span.end()
