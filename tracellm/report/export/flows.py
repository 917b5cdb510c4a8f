"""Arrows of a timeline: what went from one call to another that is not its own.

Messages between processes and threads, calls that started a thread or a process, and each request's way from where it
was submitted through every step that served it.
"""

from dataclasses import dataclass
from typing import Literal

from tracellm.report.export.chosen import Chosen, same_thread
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import STEP_SPAN

__all__ = ["Flow", "flows"]


@dataclass(frozen=True, slots=True)
class Flow:
    """One arrow, or a chain of arrows, through spans in the order of time.

    A request's goes from the call that submitted it to its life, and on to its steps.
    """

    id: int
    """From 1; no two flows of a run share it."""
    kind: Literal["message", "start", "request"]
    name: str
    spans: tuple[Span, ...]


def flows(chosen: Chosen) -> list[Flow]:
    """The arrows between what is exported; those to or from what was left out are left out, too."""
    found: list[tuple[Literal["message", "start", "request"], str, tuple[Span, ...]]] = []
    for message in chosen.trace.messages:
        send, receive = message.send, message.receive
        if receive is None or receive.start_ns < send.start_ns:
            continue  # an arrow goes forward in time, also where the clocks of two machines differ
        if chosen.holds(send) and chosen.holds(receive):
            found.append(("message", str(send.attributes.get(names.MESSAGE_TYPE, "message")), (send, receive)))
    for span in chosen.calls:
        caller = chosen.caller(span)
        if caller is not None and not same_thread(caller, span):
            found.append(("start", span.name, (caller, span)))
    for life, steps in _served(chosen).values():
        if steps:
            name = f"request {life.attributes.get(names.REQUEST_ID, '?')}"
            found.append(("request", name, (*_submitted_by(chosen, life), life, *steps)))
    return [Flow(number, kind, name, spans) for number, (kind, name, spans) in enumerate(found, start=1)]


def _submitted_by(chosen: Chosen, life: Span) -> list[Span]:
    """The call that a request's life links to, if it is exported."""
    calls = (chosen.trace.by_id.get(link.span_id) for link in life.links)
    return [call for call in calls if call is not None and chosen.holds(call)][:1]


def _served(chosen: Chosen) -> dict[str, tuple[Span, list[Span]]]:
    """Each request's life, by its span id, and the steps that link to it."""
    served: dict[str, tuple[Span, list[Span]]] = {life.span_id: (life, []) for life in chosen.lives}
    for span in chosen.calls:
        if span.name == STEP_SPAN:
            for link in span.links:
                if link.span_id in served:
                    served[link.span_id][1].append(span)
    return served
