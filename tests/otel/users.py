"""Programs with their own OpenTelemetry: a tracer of the SDK, its exports, and a probed call."""

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
    """Request tracers from earlier providers within a recording, so that their spans are recorded."""
    for provider in _providers:
        provider.get_tracer("shop", "1.2")


@dataclass
class Program:
    """A tracer, and its spans in the program's own exporter."""

    provider: TracerProvider
    tracer: trace.Tracer
    exporter: InMemorySpanExporter

    @property
    def exported(self) -> dict[str, ReadableSpan]:
        """Return the exported spans by name; a later span replaces an earlier one."""
        return {span.name: span for span in self.exporter.get_finished_spans()}


def make_program(sampler: Sampler | None = None) -> Program:
    """Make a program with its own provider, isolated from other tests."""
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
    """Record as tests.probes.tracing does, but with the machine's clocks, which the SDK uses too."""

    def main() -> None:
        ask_for_tracers()
        run()

    return tracing.record(folder, main, clock=Clock.real(), **options)


def current() -> tuple[str, str]:
    """Return trace id and span id of the current span, as a recording writes them."""
    ids = trace.get_current_span().get_span_context()
    return f"{ids.trace_id:032x}", f"{ids.span_id:016x}"


@probe
def leaf() -> tuple[str, str]:
    """Return the current ids within a probed call without children."""
    return current()


def one(recorded: Trace, name: str) -> Span:
    """Return the only span of this name."""
    [span] = recorded.named(name)
    return span


def tree(recorded: Trace) -> list[str]:
    """Return each span's name, indented by depth."""
    return ["  " * depth + span.name for root in recorded.roots for depth, span in recorded.walk(root)]


def current_id(span: trace.Span) -> str:
    """Return the span's id as recorded."""
    return f"{span.get_span_context().span_id:016x}"
