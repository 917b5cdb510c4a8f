"""A request's life as a timeline shows it: one long bar, and below it when it waited, and what was done for it when.

Found from the steps: a request waits until the first step that computes some of it begins, then it is in prefill or
decode, and preempted from the step that took its blocks to the one that gives it some again.
"""

from dataclasses import dataclass, field

from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import steps

__all__ = ["Life", "Phase", "lives"]


@dataclass(slots=True)
class Phase:
    """A part of a life: waiting, prefill, decode or preempted. Times are nanoseconds since 1970."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Life:
    """A request's life: its span, its name `request 0`, and its phases, which follow one another without a gap."""

    span: Span
    name: str
    phases: list[Phase] = field(default_factory=list)


def lives(trace: Trace) -> list[Life]:
    """The lives of all requests, in the order of their submission."""
    by_span: dict[str, Life] = {}
    by_id: dict[str, Life] = {}
    for span in trace.spans:
        if span.name == names.REQUEST_SPAN:
            request_id = str(span.attributes.get(names.REQUEST_ID, "?"))
            life = Life(span, f"request {request_id}", [Phase("waiting", span.start_ns, span.end_ns)])
            by_span[span.span_id] = life
            by_id.setdefault(request_id, life)
    for step in steps(trace) if by_span else ():
        linked = (by_span[link.span_id] for link in step.span.links if link.span_id in by_span)
        here = {str(life.span.attributes.get(names.REQUEST_ID)): life for life in linked}
        for request in step.requests:
            if served := here.get(request.request_id) or by_id.get(request.request_id):
                _turn(served, request.phase or step.kind, step.span.start_ns)
        for request_id in step.preempted:
            if stopped := here.get(request_id) or by_id.get(request_id):
                _turn(stopped, "preempted", step.span.start_ns)
    return list(by_span.values())


def _turn(life: Life, name: str, at: int) -> None:
    """A phase begins, unless it goes on already, or the life is over: one step may still be under way then."""
    last = life.phases[-1]
    at = max(at, last.start_ns)
    if last.name == name or at >= life.span.end_ns:
        return
    last.end_ns = at
    life.phases.append(Phase(name, at, life.span.end_ns))
