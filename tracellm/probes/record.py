"""What is noted of a call that goes on for long or ends in another way than most: for all kinds of wrappers.

A call that ends well at once is noted by its wrapper itself (template.py), where calling these functions would cost as
much as the note.
"""

from collections.abc import Callable
from typing import Any

from tracellm.probes.errors import is_an_end, remember
from tracellm.probes.spec import Probe
from tracellm.probes.state import Place, state

__all__ = ["began", "ended"]


def began(probe: Probe, call: int, parent: int, place: Place, start: int, args: tuple[Any, ...]) -> None:
    """Note a call that may last, so that it is known of should it never end."""
    if probe.lasting:
        state.open[call] = (probe, parent, place, probe.owner(args), start)


def ended(
    append: Callable[[Any], None],
    probe: Probe,
    call: int,
    parent: int,
    place: Place,
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
    if capture is not None and (error is None or probe.even_if_raises):
        try:
            facts = capture(args, kwargs, result)
        except Exception as mistake:
            probe.disable("capture", mistake)
    captured = state.clock() if probe.timed and error is None else end
    remembered = None if error is None or is_an_end(error, probe.loop) else remember(error)
    append((probe, call, parent, place, probe.owner(args), start, end, captured, facts, remembered))
    state.open.pop(call, None)
