"""Which spans may be written now: those whose parent is in the file, or goes into it with them.

Calls end, and are recorded, before the calls around them. Would each be written at once, then of a process that is
killed the file would hold calls without the one that made them. So a span waits for its parent, though not for ever: a
parent may have ended long before, as where a task outlives the call that made it.
"""

from collections.abc import Callable, Iterable

from tracellm.trace.model import Span

__all__ = ["Withheld"]

_ROUNDS = 2
"""After so many rounds the parent is told of as being under way, or has ended before."""


class Withheld:
    """`is_told(span id)`: is there a span of this id in the file, or is it of another process?"""

    def __init__(self, is_told: Callable[[str], bool]) -> None:
        self._is_told = is_told
        self._waiting: list[tuple[int, Span]] = []

    def release(self, spans: Iterable[Span]) -> list[Span]:
        """Of these spans, in the order they ended, and of those that wait, the ones to write now: one round."""
        going: list[Span] = []
        ids: set[str] = set()
        staying: list[tuple[int, Span]] = []
        for rounds, span in reversed([*self._waiting, *((0, span) for span in spans)]):
            parent = span.parent_span_id
            if parent is None or parent in ids or rounds >= _ROUNDS or self._is_told(parent):
                ids.add(span.span_id)
                going.append(span)
            else:
                staying.append((rounds + 1, span))
        self._waiting = staying[::-1]
        return going[::-1]

    def rest(self) -> list[Span]:
        """All that wait."""
        waiting, self._waiting = self._waiting, []
        return [span for _, span in waiting]
