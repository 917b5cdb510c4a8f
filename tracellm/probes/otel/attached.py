"""A context of OpenTelemetry that a program attached while something was recorded, and when that was.

Contexts and calls are numbered from one counter: of a context that is attached and a call that is under way, the one
with the greater number is the inner one.
"""

from opentelemetry.context.context import Context

from tracellm.probes.state import CALL, PLACE, Begun, Place, Spot, state

__all__ = ["Attached", "holds", "is_innermost", "of_this_recording", "was_attached_in"]


class Attached(Context):
    """A context that was attached while something was recorded.

    Attributes:
        number: from the counter of calls: calls with a greater one began in it.
        recording: the first call of the recording.
        below: what it was attached on top of; None where that was nothing of the same recording.
        depth: how many are below it.
        within: the innermost of it and those below it that has a spot of its own; None for none.
        call, begun: the call, and the trace, that are current at that spot when no other call is under way.
    """

    number = 0
    recording = 0
    depth = 0
    below: "Attached | None" = None
    within: "Attached | None" = None
    call = 0
    begun: Begun | None = None


def of_this_recording(context: Context | None) -> Attached | None:
    """The context, if it was attached in the recording that is under way."""
    return context if isinstance(context, Attached) and context.recording == state.first else None


def is_innermost(context: Context, spot: Spot) -> bool:
    """Was this context attached within the call that is under way, or is it the call that is within the context?"""
    if context.__class__ is not Attached or context.recording != state.first:
        return False
    return context.number > spot[CALL] and context.number >= spot[PLACE].since


def holds(top: Attached | None, attached: Attached) -> bool:
    """Is this one of the contexts that are attached?"""
    while top is not None and top.number > attached.number:
        top = top.below
    return top is attached


def was_attached_in(context: Context, place: Place) -> bool:
    """Was this context attached since the place came to be?"""
    attached = of_this_recording(context)
    return attached is not None and attached.number >= place.since
