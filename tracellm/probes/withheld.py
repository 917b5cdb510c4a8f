"""Which spans may be written now: those whose parent is in the file, or goes into it with them.

Calls end, and are recorded, before the calls around them. Would each be written at once, then of a process that is
killed the file would hold calls without the one that made them. So a span waits for its parent, though not for ever: a
parent may have ended long before, as where a task outlives the call that made it.

It works on the numbers of calls. What waits is kept by the call that it all waits for, so that nothing is looked at
twice: when that call comes, all of it goes along, or waits with it for the next one around.
"""

from tracellm.probes.scribe import Written

__all__ = ["Withheld"]

_LOOKS = 2
"""After so many looks a call is told of as being under way, or has ended before."""
_MOST_LATE = 10_000
_BLOCK = 32
"""So many calls are looked at in one go."""


class Withheld:
    """Knows the calls of one process.

    Args:
        first: the first of them; what was called by an earlier one, of another process, waits for nobody.
        told_open: those under way of which there is a span in the file; what has ended is taken out of it here.
    """

    def __init__(self, first: int, told_open: set[int]) -> None:
        self._first = first
        self._told_open = told_open
        self._waiting: dict[int, list[str]] = {}  # by the call that has to come
        self._looks: dict[int, int] = {}  # how often it has not been there
        self._late: set[int] = set()  # what has not come is not waited for again

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def release(self, written: Written) -> list[str]:
        """Of these and of those that wait, the texts to write now, in the order they ended."""
        ended = set(written.calls)
        self._told_open -= self._told_open & ended  # few of many
        self._late -= self._late & ended
        missing = [call for call in set(written.parents) - ended if self._is_waited_for(call)]
        come = [call for call in self._waiting if call in ended or not self._is_waited_for(call)]
        if not missing and not come:
            return written.texts
        going, waits_for = self._divide(written, missing) if missing else (written.texts, {})
        before: list[str] = []
        for call in come:
            texts = self._waiting.pop(call)
            self._looks.pop(call, None)
            if (other := waits_for.get(call)) is not None:
                self._waiting[other] = texts + self._waiting[other]
            else:
                before += texts
        return before + going

    def look(self) -> None:
        """The writer has told of what is under way: what has not come by now is not waited for any longer."""
        for call in self._waiting:
            self._looks[call] = self._looks.get(call, 0) + 1
            if self._looks[call] >= _LOOKS:
                self._late.add(call)
        if len(self._late) > _MOST_LATE:
            self._late.intersection_update(self._waiting)

    def rest(self) -> list[str]:
        """All that wait."""
        texts = [text for waiting in self._waiting.values() for text in waiting]
        self._waiting.clear()
        self._looks.clear()
        return texts

    def _is_waited_for(self, call: int) -> bool:
        return call >= self._first and call not in self._told_open and call not in self._late

    def _divide(self, written: Written, missing: list[int]) -> tuple[list[str], dict[int, int]]:
        """What may go, and for which call each of the others has to wait, and now does."""
        waits_for = {call: call for call in missing}
        staying: dict[int, list[str]] = {call: [] for call in missing}
        begin = _begin_within(min(missing), written.parents)
        going: list[str] = []
        backwards = zip(*(reversed(of[begin:]) for of in (written.calls, written.parents, written.texts)), strict=True)
        for call, parent, text in backwards:
            if (other := waits_for.get(parent)) is None:  # a parent comes after its children: here before them
                going.append(text)
            else:
                waits_for[call] = other
                staying[other].append(text)
        for call, texts in staying.items():
            self._waiting.setdefault(call, []).extend(reversed(texts))
        return written.texts[:begin] + going[::-1], waits_for


def _begin_within(call: int, parents: list[int]) -> int:
    """Up to where none is within this call: all have parents that began before. To a block, for that is quicker."""
    begin = 0
    while begin < len(parents) and max(parents[begin : begin + _BLOCK]) < call:
        begin += _BLOCK
    return begin
