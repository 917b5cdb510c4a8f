"""OpenTelemetry as the program that is recorded uses it: what is replaced in it while the recording goes on.

A program that does not import OpenTelemetry has nothing to do with any of this, and nothing of it is imported for it.
In one that does, a recording and the program's own spans are one tree: probed calls are the parents of spans opened in
them (context.py, current.py), spans are the parents of calls made in them, and they are recorded too (user_spans.py,
api_span.py). Everything that the program exports by itself goes where it would go anyway.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tracellm.probes.clock import Clock
from tracellm.probes.spec import Mistake
from tracellm.probes.traceparent import is_sampled, parse

if TYPE_CHECKING:
    from tracellm.probes.build import Builder
    from tracellm.probes.otel.api_span import ApiSpans
    from tracellm.probes.otel.context import Contexts
    from tracellm.probes.otel.user_spans import UserSpans

__all__ = ["OpenTelemetry", "Outside", "parent_from_outside"]

Function = Callable[..., Any]
Make = Callable[[Function], Function]

_CONTEXT = "opentelemetry.context.contextvars_context:ContextVarsRuntimeContext"
_API = "opentelemetry.trace"
_SDK = "opentelemetry.sdk.trace:Span"

_OTHER_CONTEXT, _USUAL_CONTEXT = "OTEL_PYTHON_CONTEXT", "contextvars_context"

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
    told = current.get_span_context() if current is not None else None
    if told is not None and told.is_valid:
        return Outside(f"{told.trace_id:032x}", f"{told.span_id:016x}", told.trace_flags.sampled)
    header = environment.get(VARIABLE)
    ids = parse(header)
    return None if header is None or ids is None else Outside(*ids, is_sampled(header))


class OpenTelemetry:
    """For one recording in one process. `builder` gives what makes its spans; `mistakes` is told what went wrong."""

    def __init__(self, clock: Clock, text: bool, builder: Callable[[], "Builder"], mistakes: list[Mistake]) -> None:
        self._clock = clock
        self._text = text
        self._builder = builder
        self._mistakes = mistakes
        self._tied: Contexts | None = None
        self._recorded: UserSpans | None = None
        self._made: ApiSpans | None = None
        self.sampled = True
        """Whether the parent from outside wants spans to be sampled."""

    @property
    def patches(self) -> dict[str, Make]:
        """What to replace, and by what (patches.py)."""
        return {
            f"{_CONTEXT}.get_current": lambda old: self._contexts().get_current(old),
            f"{_CONTEXT}.attach": lambda old: self._contexts().attach(old),
            f"{_CONTEXT}.detach": lambda old: self._contexts().detach(old),
            f"{_API}:NoOpTracer.start_span": lambda old: self._api_spans().start_span(old),
            f"{_API}:NoOpTracer.start_as_current_span": lambda old: self._api_spans().start_as_current_span(old),
            f"{_API}:ProxyTracer.__init__": lambda old: self._api_spans().name_proxy(old),
            f"{_API}:NoOpTracerProvider.get_tracer": lambda old: self._api_spans().name_tracer(old),
            f"{_SDK}.start": lambda old: self._user_spans().start(old),
            f"{_SDK}.end": lambda old: self._user_spans().end(old),
        }

    def _contexts(self) -> "Contexts":
        if self._tied is None:
            from tracellm.probes.otel.context import Contexts

            self._tied = Contexts()
        return self._tied

    def _api_spans(self) -> "ApiSpans":
        if self._made is None:
            from tracellm.probes.otel.api_span import ApiSpans
            from tracellm.probes.otel.current import Spans

            builder = self._builder()
            self._made = ApiSpans(self._user_spans(), builder.span_id)
            self._contexts().spans = Spans(builder.place_of, self.sampled)
            if (other := os.environ.get(_OTHER_CONTEXT, _USUAL_CONTEXT)) not in ("", _USUAL_CONTEXT):
                told = f"{_OTHER_CONTEXT} is {other}: the recording cannot know which span is current there"
                self._mistakes.append(Mistake(told, ""))
        return self._made

    def _user_spans(self) -> "UserSpans":
        if self._recorded is None:
            from tracellm.probes.otel.user_spans import UserSpans

            self._recorded = UserSpans(self._clock, self._text, self._builder().place_of, self._mistakes)
        return self._recorded
