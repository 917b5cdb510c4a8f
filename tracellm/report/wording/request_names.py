"""Short names for requests whose ids hold 32 random hexadecimal digits, as those of the OpenAI server do.

`chatcmpl-5f0c4be19d0c4c55a2a36f6a0f4b4a7e` becomes `chatcmpl-5f0c`, its beginning: it can be searched for elsewhere.
"""

import re
from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from tracellm.trace.steps import Step

__all__ = ["RequestNames", "without_shared_beginning"]

_RANDOM = re.compile(r"[0-9a-f]{32}")
_FEWEST_DIGITS = 4
_BEGINNING = re.compile(r".*[-_:/. ]", re.DOTALL)
"""Beginning of a name, up to its last separator."""


class RequestNames:
    """The short names of a run's requests. A name, once given, stays, and stands for one request only."""

    def __init__(self) -> None:
        self._short: dict[str, str] = {}  # the digits of an id -> the digits shown
        self._taken: set[str] = set()

    def shorten(self, text: str) -> str:
        """Return an id, or a text with ids in it, with their random digits cut."""
        return _RANDOM.sub(lambda found: self._digits(found[0]), text)

    def _digits(self, random: str) -> str:
        if random not in self._short:
            shown = next(
                random[:length]
                for length in range(_FEWEST_DIGITS, len(random) + 1)
                if random[:length] not in self._taken
            )
            self._short[random] = shown
            self._taken.add(shown)
        return self._short[random]

    def in_step(self, step: Step) -> Step:
        """Return a step with the short names in place of the ids."""
        short = self.shorten

        def each(ids: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(map(short, ids))

        return replace(
            step,
            requests=tuple(replace(entry, request_id=short(entry.request_id)) for entry in step.requests),
            new=each(step.new),
            resumed=each(step.resumed),
            preempted=each(step.preempted),
            finished={short(id): reason for id, reason in step.finished.items()},
            aborted=each(step.aborted),
            released=each(step.released),
            running=each(step.running),
            waiting=each(step.waiting),
            held=tuple(
                replace(entry, request_id=short(entry.request_id), details=short(entry.details)) for entry in step.held
            ),
            sampled=tuple(replace(entry, request_id=short(entry.request_id)) for entry in step.sampled),
        )


def without_shared_beginning(shown: Sequence[str]) -> list[str]:
    """Return names, for narrow cells, without what all of them begin with, up to a separator."""
    first, last = min(shown, default=""), max(shown, default="")  # these two have least in common
    letters = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = _BEGINNING.match("".join(letter for letter, _ in letters))
    if shared is None or len(shown) < 2:
        return list(shown)
    return [name[shared.end() :] or name for name in shown]
