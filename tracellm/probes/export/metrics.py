"""Request metrics, `gen_ai`, through OpenTelemetry's metrics API.

Each finished request is measured once: duration, time to first token, time per output token, number of tokens. Names,
units, attributes and bucket boundaries are those of the semantic conventions
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/). They go to the program's own MeterProvider; for a
program without one, the helper process (sender.py) sends them.

vLLM: vllm/v1/metrics/loggers.py has the same measurements under Prometheus' names.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracellm import __version__
from tracellm.probes.spans.tail import RecordTail
from tracellm.trace import names
from tracellm.trace.model import Span

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider

__all__ = ["HISTOGRAMS", "ProgramMetrics", "RequestMetrics", "program_provider"]

_PROVIDER = "tracellm"  # `gen_ai.provider.name`

HISTOGRAMS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "gen_ai.server.request.duration": (
        "s",
        "from a request's submission to its last token, or its failure",
        (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    ),
    "gen_ai.server.time_to_first_token": (
        "s",
        "from a request's submission to its first token",
        (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ),
    "gen_ai.server.time_per_output_token": (
        "s",
        "between a request's tokens after the first, on average",
        (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    ),
    "gen_ai.client.token.usage": (
        "{token}",
        "tokens in the prompt, and tokens generated",
        (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864),
    ),
}
"""Name: unit, description, bucket boundaries."""


class RequestMetrics:
    """Measures requests with instruments of `provider`."""

    def __init__(self, provider: "MeterProvider") -> None:
        meter = provider.get_meter("tracellm", __version__)
        self._histograms: dict[str, Histogram] = {
            name: meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries)
            for name, (unit, description, boundaries) in HISTOGRAMS.items()
        }

    def measure(self, span: Span) -> None:
        """Measure a span that is a request, unless the recording ended before the request did."""
        attributes = span.attributes
        if span.name != names.REQUEST_SPAN or (names.GEN_AI_FINISH_REASONS not in attributes and span.error is None):
            return
        about = {names.GEN_AI_OPERATION: attributes.get(names.GEN_AI_OPERATION, "text_completion")}
        about["gen_ai.provider.name"] = _PROVIDER
        if (model := attributes.get(names.GEN_AI_MODEL)) is not None:
            about[names.GEN_AI_MODEL] = about["gen_ai.response.model"] = model
        seconds = span.duration_ns / 1e9
        failed = {} if span.error is None else {names.ERROR_TYPE: span.error.partition(":")[0]}
        self._record("gen_ai.server.request.duration", seconds, {**about, **failed})
        first = attributes.get(names.GEN_AI_FIRST_CHUNK)
        num_tokens = attributes.get(names.GEN_AI_OUTPUT_TOKENS, 0)
        if first is not None:
            self._record("gen_ai.server.time_to_first_token", first, about)
            if num_tokens > 1:
                self._record("gen_ai.server.time_per_output_token", (seconds - first) / (num_tokens - 1), about)
        for name, kind in ((names.GEN_AI_INPUT_TOKENS, "input"), (names.GEN_AI_OUTPUT_TOKENS, "output")):
            if name in attributes:
                self._record("gen_ai.client.token.usage", attributes[name], {**about, "gen_ai.token.type": kind})

    def _record(self, name: str, value: float, attributes: dict[str, Any]) -> None:
        self._histograms[name].record(value, attributes)


class ProgramMetrics:
    """Measures requests of this process with the program's MeterProvider, from the record file `own`.

    `on_provider` is called once there is one, and returns a time in nanoseconds since 1970: requests that ended before
    it are measured by the helper process.
    """

    def __init__(self, own: Path, on_provider: Callable[[], int]) -> None:
        self._own = own
        self._on_provider = on_provider
        self._metrics: RequestMetrics | None = None
        self._tail: RecordTail | None = None
        self._since = 0

    def check(self) -> None:
        """Measure requests that have ended, if the program has a provider by now."""
        if self._metrics is None:
            provider = program_provider()
            if provider is None:
                return
            self._metrics = RequestMetrics(provider)
            self._tail = RecordTail(self._own.parent, only=self._own.name, span_names=frozenset())
            self._since = self._on_provider()
        self._measure()

    def end(self) -> None:
        """Measure the last requests."""
        self.check()
        if self._tail is not None:
            self._measure(self._tail.never_ended())

    def _measure(self, spans: Sequence[Span] | None = None) -> None:
        assert self._metrics is not None
        assert self._tail is not None
        for span in self._tail.new(sys.maxsize) if spans is None else spans:
            if span.end_ns >= self._since:
                self._metrics.measure(span)


def program_provider() -> "MeterProvider | None":
    """Return the MeterProvider that the program has set, or None. Imports nothing."""
    api: Any = sys.modules.get("opentelemetry.metrics")
    if api is None or not hasattr(api, "get_meter_provider"):  # another thread may be importing it
        return None
    provider: Any = api.get_meter_provider()
    is_default = isinstance(provider, api.NoOpMeterProvider) or type(provider).__name__ == "_ProxyMeterProvider"
    return None if is_default else provider
