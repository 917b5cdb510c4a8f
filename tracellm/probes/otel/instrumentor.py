"""OpenTelemetry as the program that is recorded uses it: what is replaced in it while the recording goes on.

A program that does not import OpenTelemetry has nothing to do with any of this, and nothing of it is imported for it.
In one that does, a recording and the program's own spans are one tree: probed calls are the parents of spans opened in
them (context.py, call_span.py), spans are the parents of calls made in them, and those of the SDK are recorded too
(user_spans.py). Everything that the program exports by itself goes where it would go anyway.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tracellm.probes.context.traceparent import is_sampled, parse
from tracellm.probes.wrapping.probe import Mistake

if TYPE_CHECKING:
    from tracellm.probes.otel.context import Contexts
    from tracellm.probes.otel.user_spans import UserSpans
    from tracellm.probes.record.record_file import CallIds

__all__ = ["Instrumentor", "Outside", "parent_from_outside"]

Function = Callable[..., Any]
Make = Callable[[Function], Function]

_CONTEXT = "opentelemetry.context.contextvars_context:ContextVarsRuntimeContext"
_API = "opentelemetry.trace"
_PROVIDER = "opentelemetry.sdk.trace:TracerProvider"

_OTHER_CONTEXT, _USUAL_CONTEXT = "OTEL_PYTHON_CONTEXT", "contextvars_context"
_NAMED_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"

VARIABLE = "TRACEPARENT"
"""The environment variable by which a program learns what it was started from; a `traceparent` header."""


class Outside(NamedTuple):
    """The span that a recording has for its parent, and which is not in it.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 of them.
        sampled: whether spans below it are to be sampled.
    """

    trace_id: str
    span_id: str
    sampled: bool


def parent_from_outside(environment: Mapping[str, str]) -> Outside | None:
    """OpenTelemetry's current span, else the one that the environment variable names; None where there is neither."""
    get_current_span = getattr(sys.modules.get(_API), "get_current_span", None)
    current = get_current_span() if get_current_span is not None else None
    current = getattr(current, "under", current)  # not a span of ours, that an earlier recording has left
    ids = current.get_span_context() if current is not None else None
    if ids is not None and ids.is_valid:
        return Outside(f"{ids.trace_id:032x}", f"{ids.span_id:016x}", ids.trace_flags.sampled)
    header = environment.get(VARIABLE)
    parsed = parse(header)
    return None if header is None or parsed is None else Outside(*parsed, is_sampled(header))


class Instrumentor:
    """For one recording in one process. `ids` gives those of its calls; `mistakes` lists what went wrong."""

    def __init__(self, text: bool, ids: Callable[[], "CallIds"], mistakes: list[Mistake]) -> None:
        self._text = text
        self._ids = ids
        self._mistakes = mistakes
        self._contexts: Contexts | None = None
        self._spans: UserSpans | None = None
        self.sampled = True
        """Whether the parent from outside wants spans to be sampled."""

    @property
    def patches(self) -> dict[str, Make]:
        """The functions to replace, and what makes their replacements (patcher.py)."""
        return {
            f"{_CONTEXT}.get_current": lambda old: self._tied().get_current(old),
            f"{_CONTEXT}.attach": lambda old: self._tied().attach(old),
            f"{_CONTEXT}.detach": lambda old: self._tied().detach(old),
            f"{_API}:set_tracer_provider": self._set_tracer_provider,
            f"{_PROVIDER}.__init__": lambda old: self._followed().new_provider(old),
            f"{_PROVIDER}.add_span_processor": lambda old: self._followed().add_span_processor(old),
            f"{_PROVIDER}.get_tracer": lambda old: self._followed().get_tracer(old),
        }

    def _tied(self) -> "Contexts":
        if self._contexts is None:
            from tracellm.probes.otel.context import Contexts

            self._contexts = Contexts()
        return self._contexts

    def _set_tracer_provider(self, old: Function) -> Function:
        """Called when `opentelemetry.trace` is there: from now on a call can be the current span."""
        from tracellm.probes.otel.call_span import CallSpans

        self._tied().spans = CallSpans(self._ids().place_of, self.sampled, self._text)
        if (other := os.environ.get(_OTHER_CONTEXT, _USUAL_CONTEXT)) not in ("", _USUAL_CONTEXT):
            problem = f"{_OTHER_CONTEXT} is {other}: the recording cannot know which span is current there"
            self._mistakes.append(Mistake(problem, ""))

        def set_tracer_provider(tracer_provider: Any) -> None:
            old(tracer_provider)
            if self._spans is not None:
                self._spans.follow(tracer_provider)

        return set_tracer_provider

    def _followed(self) -> "UserSpans":
        """Made when the SDK is there."""
        if self._spans is None:
            from opentelemetry.trace import get_tracer_provider

            from tracellm.probes.otel.user_spans import UserSpans

            self._spans = UserSpans(self._text, self._ids().place_of, self._mistakes)
            if _NAMED_PROVIDER not in os.environ:  # else asking for the global one could be what makes it
                self._spans.follow(get_tracer_provider())
        return self._spans
