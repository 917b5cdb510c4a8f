"""Programs that use OpenTelemetry themselves, for the tests: a tracer of the SDK and what it exports, a probed call."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler

from tests.probes import tracing
from tracellm import probe
from tracellm.probes.context.clock import Clock
from tracellm.trace.model import Span, Trace

__all__ = [
    "Program",
    "ask_for_tracers",
    "current",
    "current_id",
    "leaf",
    "make_program",
    "one",
    "program",
    "record",
    "tracer",
    "tree",
]


_providers: WeakSet[TracerProvider] = WeakSet()


def ask_for_tracers() -> None:
    """What programs do within a recording, for all that a test has made before: from then on their spans are seen."""
    for provider in _providers:
        provider.get_tracer("shop", "1.2")


@dataclass
class Program:
    """A tracer, and what its spans became in the program's own exporter."""

    provider: TracerProvider
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
    _providers.add(provider)
    return Program(provider, provider.get_tracer("shop", "1.2"), exporter)


@pytest.fixture
def program() -> Program:
    """A program with the SDK."""
    return make_program()


@pytest.fixture
def tracer(program: Program) -> trace.Tracer:
    """The program's tracer."""
    return program.tracer


def record(folder: Path, run: Callable[[], Any], **options: Any) -> Trace:
    """As tests.probes.tracing has it, with the machine's clocks, which the SDK reads as well."""

    def main() -> None:
        ask_for_tracers()
        run()

    return tracing.record(folder, main, clock=Clock.real(), **options)


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
