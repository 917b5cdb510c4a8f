"""OpenTelemetry in the recorded program: what is patched in it during a recording.

A recording and the program's own spans form one tree: probed calls are parents of the spans opened in them
(call_span.py), spans are parents of the calls made in them (context.py), and spans of the SDK are recorded too
(user_spans.py). The program's own exports are unchanged.

OpenTelemetry is never imported for this: a program without it is recorded without.
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

_CONTEXT = "opentelemetry.context.contextvars_context:ContextVarsRuntimeContext"
_API = "opentelemetry.trace"
_PROVIDER = "opentelemetry.sdk.trace:TracerProvider"

_OTHER_CONTEXT, _USUAL_CONTEXT = "OTEL_PYTHON_CONTEXT", "contextvars_context"
_NAMED_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
_VARIABLE = "TRACEPARENT"  # a header: the span that started the program


class Outside(NamedTuple):
    """Parent of a recording that is not part of it: `trace_id`, `span_id`, and whether it is `sampled`."""

    trace_id: str
    span_id: str
    sampled: bool


def parent_from_outside(environment: Mapping[str, str]) -> Outside | None:
    """Return OpenTelemetry's current span, else the span of the variable TRACEPARENT, else None."""
    get_current_span = getattr(sys.modules.get(_API), "get_current_span", None)
    current = get_current_span() if get_current_span is not None else None
    current = getattr(current, "user_span", current)  # not a CallSpan left by an earlier recording
    ids = current.get_span_context() if current is not None else None
    if ids is not None and ids.is_valid:
        return Outside(f"{ids.trace_id:032x}", f"{ids.span_id:016x}", ids.trace_flags.sampled)
    header = environment.get(_VARIABLE)
    parsed = parse(header)
    return None if header is None or parsed is None else Outside(*parsed, is_sampled(header))


class Instrumentor:
    """Ties OpenTelemetry to one recording in one process; failures are added to `mistakes`.

    Attributes:
        sampled: whether the parent outside is sampled.
    """

    def __init__(self, text: bool, call_ids: "Callable[[], CallIds]", mistakes: list[Mistake]) -> None:
        self._text = text
        self._call_ids = call_ids
        self._mistakes = mistakes
        self._contexts: Contexts | None = None
        self._spans: UserSpans | None = None
        self.sampled = True

    @property
    def patches(self) -> dict[str, Callable[[Function], Function]]:
        """Targets to patch, and what makes their replacements (install/patcher.py)."""
        return {
            f"{_CONTEXT}.get_current": lambda old: self._get_contexts().get_current(old),
            f"{_CONTEXT}.attach": lambda old: self._get_contexts().attach(old),
            f"{_CONTEXT}.detach": lambda old: self._get_contexts().detach(old),
            f"{_API}:set_tracer_provider": self._set_tracer_provider,
            f"{_PROVIDER}.__init__": lambda old: self._user_spans().new_provider(old),
            f"{_PROVIDER}.add_span_processor": lambda old: self._user_spans().add_span_processor(old),
            f"{_PROVIDER}.get_tracer": lambda old: self._user_spans().get_tracer(old),
        }

    def _get_contexts(self) -> "Contexts":
        if self._contexts is None:
            from tracellm.probes.otel.context import Contexts

            self._contexts = Contexts()
        return self._contexts

    def _set_tracer_provider(self, old: Function) -> Function:
        """Patch `set_tracer_provider`, once `opentelemetry.trace` is imported; a call can then be the current span."""
        from tracellm.probes.otel.call_span import CallSpans

        self._get_contexts().spans = CallSpans(self._call_ids().parent_in_thread, self.sampled, self._text)
        if (other := os.environ.get(_OTHER_CONTEXT, _USUAL_CONTEXT)) not in ("", _USUAL_CONTEXT):
            problem = f"{_OTHER_CONTEXT} is {other}: the recording cannot find which span is current there"
            self._mistakes.append(Mistake(problem, ""))

        def set_tracer_provider(tracer_provider: Any) -> None:
            old(tracer_provider)
            if self._spans is not None:
                self._spans.follow(tracer_provider)

        return set_tracer_provider

    def _user_spans(self) -> "UserSpans":
        """Return the recorder of user spans, made once the SDK is imported."""
        if self._spans is None:
            from opentelemetry.trace import get_tracer_provider

            from tracellm.probes.otel.user_spans import UserSpans

            self._spans = UserSpans(self._text, self._call_ids().parent_in_thread, self._mistakes)
            if _NAMED_PROVIDER not in os.environ:  # else asking for the global one might create it
                self._spans.follow(get_tracer_provider())
        return self._spans
