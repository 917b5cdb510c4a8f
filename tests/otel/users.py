"""Programs that use OpenTelemetry themselves, for the tests: a tracer of the SDK and what it exports, a probed call."""

from dataclasses import dataclass

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler

from tracellm import probe
from tracellm.trace.model import Span, Trace

__all__ = [
    "Program",
    "bare_tracer",
    "current",
    "current_id",
    "leaf",
    "make_program",
    "one",
    "program",
    "tracer",
    "tree",
]


@dataclass
class Program:
    """A tracer, and what its spans became in the program's own exporter."""

    tracer: trace.Tracer
    exporter: InMemorySpanExporter

    @property
    def exported(self) -> dict[str, ReadableSpan]:
        """By name; a later span takes an earlier one's place."""
        return {span.name: span for span in self.exporter.get_finished_spans()}


def make_program(sampler: Sampler | None = None) -> Program:
    """With a provider of its own, so that no test sees another's."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler or ParentBased(ALWAYS_ON), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Program(provider.get_tracer("shop", "1.2"), exporter)


@pytest.fixture
def program() -> Program:
    """A program with the SDK."""
    return make_program()


def bare_tracer() -> trace.Tracer:
    """A tracer as programs have it where no SDK is."""
    return trace.NoOpTracerProvider().get_tracer("shop", "1.2")


@pytest.fixture(params=["sdk", "bare"])
def tracer(request: pytest.FixtureRequest, program: Program) -> trace.Tracer:
    """The SDK's tracer, and that of the API alone."""
    return program.tracer if request.param == "sdk" else bare_tracer()


def current() -> tuple[str, str]:
    """Trace id and span id of the current span, as a recording writes them."""
    ids = trace.get_current_span().get_span_context()
    return f"{ids.trace_id:032x}", f"{ids.span_id:016x}"


@probe
def leaf() -> tuple[str, str]:
    """A probed call that makes none; returns what is current in it."""
    return current()


def one(recorded: Trace, name: str) -> Span:
    """The only span of this name."""
    [span] = recorded.named(name)
    return span


def tree(recorded: Trace) -> list[str]:
    """Each span's name, indented by depth."""
    return ["  " * depth + span.name for root in recorded.roots for depth, span in recorded.walk(root)]


def current_id(span: trace.Span) -> str:
    """The span's id as it is recorded."""
    return f"{span.get_span_context().span_id:016x}"
