"""Facts of a run's requests: prompts, outputs, parameters, and their times in each state.

A request's span is recorded by the process that submitted it. The steps that served it may be in another process, and
link to the span.
"""

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter

from tracellm.report.facts.items.item import Item, read_items
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN, Step, steps

__all__ = [
    "RequestFacts",
    "RequestTimes",
    "RequestsByStep",
    "as_int",
    "as_list",
    "as_text",
    "request_times",
    "requests",
]


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """One request. `prompt` and `output` are None in a recording without text; `finish_reason` while it runs.

    `parent` is the request with n > 1 whose output `index` this one makes. `params` are those that differ from their
    defaults, and always max_tokens and temperature.
    """

    id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    output: str | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    seconds: float
    steps: int | None
    params: tuple[tuple[str, str], ...]
    error: str | None
    parent: str | None = None
    index: int = 0
    span_id: str = ""
    """Id of its span."""
    prompt_token_texts: tuple[str, ...] = ()
    """Text of each of `prompt_token_ids`, if recorded."""
    items: tuple[Item, ...] = ()
    """Its images and sounds."""
    stopped_by: str | None = None
    """`stop_string` or `stop_token`, if one of its own ended it."""

    @property
    def ended_by(self) -> str | None:
        """The finish reason, or what stopped the request."""
        return self.stopped_by or self.finish_reason


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Times of a request in each state, in seconds; None for a state that it did not reach.

    The states are those of vLLM's metrics. `queued` ends with the start of the first step that computes some of it,
    `prefill` with the end of the step that gives its first token, and `decode` with the end of the step that gives its
    last. `first_token` is the time from submission to the first token. All end with the request at the latest: until
    an abort reaches the engine core, steps compute tokens that nobody gets.
    """

    queued: float | None
    prefill: float | None
    decode: float | None
    first_token: float | None


_PARAMETERS = (
    names.GEN_AI_MAX_TOKENS,
    names.GEN_AI_TEMPERATURE,
    names.GEN_AI_TOP_P,
    names.GEN_AI_TOP_K,
    names.GEN_AI_SEED,
    names.GEN_AI_STOP,
)


def requests(spans: Iterable[Span]) -> list[RequestFacts]:
    """Return every request, in the order of submission."""
    spans = list(spans)
    # if the engine core has a process of its own, only its steps link to their requests
    linked = Counter(link.span_id for span in spans if span.name == STEP_SPAN for link in span.links)
    return [_request(span, linked[span.span_id] or None) for span in spans if span.name == names.REQUEST_SPAN]


def request_times(trace: Trace) -> dict[str, RequestTimes]:
    """Return the times of each request, found from its steps, by its span id and by its own id.

    If two engines of one run use the same id, that id has the times of the first.
    """
    request_spans = {span.span_id: span for span in trace.named(names.REQUEST_SPAN)}
    by_id: dict[str, str] = {}
    for span in request_spans.values():
        by_id.setdefault(str(span.attributes.get(names.REQUEST_ID, "")), span.span_id)
    began: dict[str, int] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}

    def end_of(span_id: str) -> int:
        span = request_spans.get(span_id)
        return sys.maxsize if span is None or span.open else span.end_ns

    for step in steps(trace):
        linked = (request_spans[link.span_id] for link in step.span.links if link.span_id in request_spans)
        here = {str(span.attributes.get(names.REQUEST_ID, "")): span.span_id for span in linked}
        for request in step.requests:
            span_id = here.get(request.request_id) or by_id.get(request.request_id, "")
            if step.span.start_ns <= end_of(span_id):
                began.setdefault(span_id, step.span.start_ns)
        for sampled in step.sampled:
            span_id = here.get(sampled.request_id) or by_id.get(sampled.request_id, "")
            if step.span.start_ns <= end_of(span_id):
                last[span_id] = min(step.span.end_ns, end_of(span_id))
                first.setdefault(span_id, last[span_id])

    def between(start: int | None, end: int | None) -> float | None:
        return None if start is None or end is None else max(0, end - start) / 1e9

    times = {
        id: RequestTimes(
            queued=between(span.start_ns, began.get(id)),
            prefill=between(began.get(id), first.get(id)),
            decode=between(first.get(id), last.get(id)),
            first_token=between(span.start_ns, first.get(id)),
        )
        for id, span in request_spans.items()
    }
    return times | {id: times[span_id] for id, span_id in by_id.items()}


class RequestsByStep:
    """The recorded request behind each id at a step: the one that the steps link to, or the last one submitted before.

    Requests may share an id: those of several engines, and those of one engine after each other.
    """

    def __init__(self, trace: Trace) -> None:
        self._by_span, self._by_id = _index(trace)
        self._linked: dict[str, RequestFacts] = {}
        self._now = 0

    def enter(self, step: Step) -> None:
        """Advance to a step of the engine; steps are entered in their order."""
        found = (self._by_span.get(link.span_id) for link in step.span.links)
        self._linked |= {request.id: request for request in found if request is not None}
        self._now = step.span.end_ns

    def get(self, request_id: str) -> RequestFacts | None:
        """Return the request, or None if no request of this id is recorded."""
        if (linked := self._linked.get(request_id)) is not None:
            return linked
        own = self._by_id.get(request_id)
        return None if own is None else own[max(bisect_right(own, self._now, key=itemgetter(0)) - 1, 0)][1]


@per_trace
def _index(trace: Trace) -> tuple[dict[str, RequestFacts], dict[str, list[tuple[int, RequestFacts]]]]:
    """Return the requests by the ids of their spans, and by their own ids with their submissions, in order."""
    by_span = {request.span_id: request for request in requests(trace.spans)}
    by_id: dict[str, list[tuple[int, RequestFacts]]] = {}
    for request in by_span.values():
        by_id.setdefault(request.id, []).append((trace.by_id[request.span_id].start_ns, request))
    return by_span, by_id


def _params(span: Span) -> tuple[tuple[str, str], ...]:
    params = {name.rpartition(".")[2]: str(span.attributes[name]) for name in _PARAMETERS if name in span.attributes}
    if names.REQUEST_PARAMS in span.attributes:
        params = {name: value for name, value in params.items() if name in ("max_tokens", "temperature")}
        if n := span.attributes.get(names.GEN_AI_CHOICES):
            params["n"] = str(n)
        for listed in (names.REQUEST_PARAMS, names.REQUEST_TEXT_PARAMS):
            params |= {
                name: value
                for name, _, value in (str(one).partition("=") for one in as_list(span.attributes.get(listed)))
            }
    if priority := span.attributes.get(names.REQUEST_PRIORITY):
        params["priority"] = str(priority)
    return tuple(params.items())


def _request(span: Span, linked_steps: int | None) -> RequestFacts:
    get = span.attributes.get
    reasons = as_list(get(names.GEN_AI_FINISH_REASONS))
    return RequestFacts(
        id=str(get(names.REQUEST_ID, "")),
        prompt=as_text(get(names.REQUEST_PROMPT)),
        prompt_token_ids=tuple(as_list(get(names.REQUEST_PROMPT_TOKENS))),
        output=as_text(get(names.REQUEST_OUTPUT)),
        input_tokens=as_int(get(names.GEN_AI_INPUT_TOKENS)),
        output_tokens=as_int(get(names.GEN_AI_OUTPUT_TOKENS)),
        finish_reason=str(reasons[0]) if reasons else None,
        seconds=span.duration_ns / 1e9,
        steps=as_int(get(names.REQUEST_STEPS)) or linked_steps,
        params=_params(span),
        error=span.error,
        parent=as_text(get(names.REQUEST_PARENT)),
        index=as_int(get(names.REQUEST_INDEX)) or 0,
        span_id=span.span_id,
        prompt_token_texts=tuple(map(str, as_list(get(names.REQUEST_PROMPT_TEXTS)))),
        items=read_items(span),
        stopped_by=as_text(get(names.REQUEST_STOPPED_BY)),
    )


def as_text(value: object) -> str | None:
    """Return an attribute's value as text; None stays."""
    return None if value is None else str(value)


def as_int(value: object) -> int | None:
    """Return an attribute's value, if it is an integer."""
    return value if isinstance(value, int) else None


def as_list(value: object) -> list:  # type: ignore[type-arg]
    """Return an attribute's value, if it is a list; else an empty one."""
    return value if isinstance(value, list) else []
