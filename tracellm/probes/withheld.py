"""Which spans may be written now: those whose parent is in the file, or goes into it with them.

Calls end, and are recorded, before the calls around them. Would each be written at once, then of a process that is
killed the file would hold calls without the one that made them. So a span waits for its parent, though not for ever: a
parent may have ended long before, as where a task outlives the call that made it.

It works on the numbers of calls, as many spans at once as there are: most of the time nothing has to wait, and two sets
say so.
"""

from typing import NamedTuple

from tracellm.probes.scribe import Written

__all__ = ["Withheld"]

_LOOKS = 2
"""After so many looks the parent is told of as being under way, or has ended before."""


class _Waiting(NamedTuple):
    looks: int
    call: int
    parent: int
    text: str


class Withheld:
    """Knows the calls of one process.

    Args:
        first: the first of them; what was called by an earlier one, of another process, waits for nobody.
        told_open: those under way of which there is a span in the file; what has ended is taken out of it here.
    """

    def __init__(self, first: int, told_open: set[int]) -> None:
        self._first = first
        self._told_open = told_open
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def release(self, written: Written) -> list[str]:
        """Of these and of those that wait, in the order they ended, the texts to write now."""
        waiting = self._waiting
        self._told_open.difference_update(written.calls)
        known = set(written.calls).union([one.call for one in waiting])
        parents = set(written.parents).union([one.parent for one in waiting])
        held = {parent for parent in parents - known if parent >= self._first and parent not in self._told_open}
        if not held:
            self._waiting = []
            return [*(one.text for one in waiting), *written.texts]
        going: list[str] = []
        staying: list[_Waiting] = []
        for call, parent, text in zip(*map(reversed, (written.calls, written.parents, written.texts)), strict=True):
            if parent in held:
                held.add(call)
                staying.append(_Waiting(0, call, parent, text))
            else:
                going.append(text)
        for one in reversed(waiting):
            if one.parent in held and one.looks < _LOOKS:
                held.add(one.call)
                staying.append(one)
            else:
                going.append(one.text)
        self._waiting = staying[::-1]
        return going[::-1]

    def look(self) -> None:
        """The writer has looked at what is under way."""
        self._waiting = [one._replace(looks=one.looks + 1) for one in self._waiting]

    def rest(self) -> list[str]:
        """All that wait."""
        waiting, self._waiting = self._waiting, []
        return [one.text for one in waiting]
