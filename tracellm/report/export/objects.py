"""The objects of a run and who calls whom: LLM > LLMEngine > client > EngineCore > executor > worker > runner > model.

An object here is a class in a process (or a module, for its functions, or the script): what is a lifeline in a sequence
diagram. Unlike that, it has no order: each pair is counted once, however often it was called.
"""

from dataclasses import dataclass, field

from tracellm.report.export.chosen import Chosen, same_thread
from tracellm.trace import names
from tracellm.trace.model import Process, Span
from tracellm.trace.names import LEVELS, Level

__all__ = ["Object", "Objects", "objects"]


@dataclass(slots=True, eq=False)
class Object:
    """A class in a process: how often it was called, and at which level the coarsest of these calls is."""

    name: str
    process: Process | None
    calls: int = 0
    level: Level = "kernel"


@dataclass(slots=True, eq=False)
class Objects:
    """The objects in the order of their first calls, and what goes between them.

    Attributes:
        known: all objects.
        calls: of a caller and a callee, how many calls and how many nanoseconds in them; calls of an object to itself
            are no part of it.
        started: the pairs of which the one started a thread or a process in which the other began to run.
        messages: of a sender, a receiver and a type of message, how many went.
    """

    known: list[Object] = field(default_factory=list)
    calls: dict[tuple[Object, Object], tuple[int, int]] = field(default_factory=dict)
    started: set[tuple[Object, Object]] = field(default_factory=set)
    messages: dict[tuple[Object, Object, str], int] = field(default_factory=dict)


def objects(chosen: Chosen) -> Objects:
    """The objects of the chosen calls. Takes time in proportion to the calls."""
    found = Objects()
    by_key: dict[tuple[int, str], Object] = {}

    def of(span: Span) -> Object:
        key = id(span.process), span.lifeline
        known = by_key.get(key)
        if known is None:
            known = by_key[key] = Object(span.lifeline, span.process)
            found.known.append(known)
        return known

    for span in chosen.calls:
        callee = of(span)
        callee.calls += 1
        callee.level = min(callee.level, span.level, key=LEVELS.index)
        around = chosen.caller(span)
        if around is not None and (caller := of(around)) is not callee:
            count, time = found.calls.get((caller, callee), (0, 0))
            found.calls[caller, callee] = count + 1, time + span.duration_ns
            if not same_thread(around, span):
                found.started.add((caller, callee))
    for message in chosen.trace.messages:
        send, receive = message.send, message.receive
        if receive is None or not (chosen.holds(send) and chosen.holds(receive)):
            continue
        # Who encodes and who decodes is a helper of those who talk to one another.
        ends = of(chosen.caller(send) or send), of(chosen.caller(receive) or receive)
        key = *ends, str(send.attributes.get(names.MESSAGE_TYPE, "?"))
        found.messages[key] = found.messages.get(key, 0) + 1
    return found
