"""Who hears of spans while the run goes on: the live log, an exporter to a collector.

Listeners stand behind the writer and are called in its thread, one after the other, with each span that has ended.
One that fails is told of and gets no other span; the others, and the file, lose nothing by it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from tracellm.trace.model import Span

__all__ = ["Listener", "Listeners"]


class Listener(Protocol):
    """Called with each ended span that it wants to hear, in the order in which they end.

    Attributes:
        names: the names of the spans that it wants to hear; None: all. Besides these it is told of each span that has
            more to tell than a call's arguments and result, such as a request's life, a step, an error, or what the
            catalog has attributes for, except what is told again by a step; it picks out what it needs. The fewer spans
            somebody wants to hear, the less a recording costs.
        title: what it is called when it has failed: `the live log`.
    """

    names: frozenset[str] | None
    title: str

    def __call__(self, span: Span) -> None:
        """A span has ended."""

    def look(self) -> None:
        """The writer has looked whether there is something to write; some five times a second."""

    def end(self) -> None:
        """There will be no other span."""


class Listeners:
    """All of a process's listeners; `tell` is given the problem when one fails."""

    def __init__(self, listeners: Iterable[Listener], tell: Callable[[str], None]) -> None:
        self._listeners = list(listeners)
        self._tell = tell

    def __bool__(self) -> bool:
        return bool(self._listeners)

    @property
    def names(self) -> frozenset[str] | None:
        """The names of the spans that one of them wants to hear; None: all."""
        every = [one.names for one in self._listeners]
        return None if None in every else frozenset().union(*(one for one in every if one is not None))

    def want(self, name: str, tells_more: bool = False) -> bool:
        """Does one of them want each span of this name, which may tell more than arguments and result?"""
        return any(tells_more or one.names is None or name in one.names for one in self._listeners)

    def hear(self, spans: Sequence[Span]) -> None:
        """These have ended."""
        for listener in self._listeners.copy():
            self._let(listener, partial(_hear, listener, spans))

    def look(self) -> None:
        """Each has its turn."""
        for listener in self._listeners.copy():
            self._let(listener, listener.look)

    def end(self) -> None:
        """Each has its last turn."""
        for listener in self._listeners.copy():
            self._let(listener, listener.end)

    def _let(self, listener: Listener, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self._listeners.remove(listener)
            self._tell(f"{listener.title} stopped: {type(error).__name__}: {error}")


def _hear(listener: Listener, spans: Iterable[Span]) -> None:
    for span in spans:
        listener(span)
