"""Records of calls that last or end in another way than most: for all kinds of wrappers.

The wrapper of a call that ends well at once appends the record itself (codegen.py); a call of these functions would
cost as much as the record.
"""

from collections.abc import Callable
from typing import Any

from tracellm.probes.context.call_context import Record, ThreadContext, state
from tracellm.probes.context.exceptions import is_an_end, remember
from tracellm.probes.wrapping.probe import Probe

__all__ = ["began", "ended"]


def began(probe: Probe, call: int, parent: int, place: ThreadContext, start: int, args: tuple[Any, ...]) -> int:
    """Note a call that may last, so that it is known if it never ends. Return its site."""
    site = probe.site(args)
    if probe.lasting:
        state.open[call] = (site, parent, place.number, start)
    return site


def ended(
    append: Callable[[Record], None],
    probe: Probe,
    site: int,
    call: int,
    parent: int,
    place: ThreadContext,
    start: int,
    end: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any = None,
    error: BaseException | None = None,
) -> None:
    """Append the record of a call that returned `result`, or that `error` left."""
    facts = None
    capture = probe.capture
    remembered = None if error is None or is_an_end(error, probe.loop) else remember(error)
    try:
        if capture is not None and (error is None or probe.even_if_raises):
            try:
                facts = capture(args, kwargs, result)
                if probe.timed:
                    facts = state.clock() - end, facts
            except Exception as mistake:
                probe.disable("capture", mistake)
    finally:  # Ctrl-C may strike in the capture
        state.open.pop(call, None)
        append((site, call, parent, place.number, start, end, facts, remembered))
