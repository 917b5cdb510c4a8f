"""Short names of requests, which keep what differs, the same in all reports of a run.

An id of a server holds random digits, of which the first few remain: `cmpl-5f0c4be19d0c4c55a2a36f6a0f4b4a7e` becomes
`cmpl-5f0c`, which can be searched for elsewhere. Of another long id the middle is left out, since ids of one caller
begin alike: `gateway-eu-west-1-000017` becomes `gateway-…est-1-000017`.
"""

import re
from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.steps import Held, Step

__all__ = ["LONGEST_REQUEST_NAME", "RequestNames", "request_names", "without_shared_beginning"]

LONGEST_REQUEST_NAME = 20
"""Characters of a name, unless another request has the shorter ones."""

_RANDOM = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}(?:\1[0-9a-f]{4}){3}[0-9a-f]{8}(?![0-9a-f])")
"""32 hexadecimal digits, or a UUID."""
_ID = re.compile(r"\b(by|request)=(\S+)")
_FEWEST_DIGITS = 4
_HEAD = 8
_KIND = re.compile(r"^([0-9]+_)?(?:chatcmpl|cmpl|resp|embd|pool|score|rerank)[-_](?=.)")
"""Kind of a server's request; the number before it is that of an output."""
_BEGINNING = re.compile(r".*[-_:/. ]", re.DOTALL)
"""Beginning of a name, up to its last separator."""


class RequestNames:
    """The short names of a run's requests. A name, once given, stays, and stands for one request only."""

    def __init__(self) -> None:
        self._short: dict[str, str] = {}  # the digits of an id -> the digits shown
        self._taken: set[str] = set()
        self._names: dict[str, str] = {}
        self._owners: dict[str, str] = {}

    def shorten(self, request_id: str) -> str:
        """Return the name of a request."""
        if request_id not in self._names:
            name = _RANDOM.sub(lambda found: self._digits(found[0]), request_id)
            if len(name) > LONGEST_REQUEST_NAME:
                name = self._without_middle(name)
            if self._owners.setdefault(name, request_id) != request_id:
                name = request_id
            self._names[request_id] = name
        return self._names[request_id]

    def in_details(self, details: str) -> str:
        """Return `name=value name=value` with names in place of the ids of `by` and `request`."""
        return _ID.sub(lambda found: f"{found[1]}={self.shorten(found[2])}", details)

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

    def _without_middle(self, name: str) -> str:
        """Return the beginning and the end of a name, or the whole name if another request has these."""
        shorter = f"{name[:_HEAD]}…{name[1 + _HEAD - LONGEST_REQUEST_NAME :]}"
        return name if shorter in self._owners else shorter

    def in_step(self, step: Step) -> Step:
        """Return a step with the short names in place of the ids."""
        short = self.shorten

        def each(ids: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(map(short, ids))

        def named(entry: Held) -> Held:
            return replace(entry, request_id=short(entry.request_id), details=self.in_details(entry.details))

        return replace(
            step,
            requests=tuple(replace(entry, request_id=short(entry.request_id)) for entry in step.requests),
            new=each(step.new),
            resumed=each(step.resumed),
            preempted=each(step.preempted),
            finished={short(id): reason for id, reason in step.finished.items()},
            aborted=each(step.aborted),
            abort_reasons={short(id): reason for id, reason in step.abort_reasons.items()},
            released=each(step.released),
            running=each(step.running),
            waiting=each(step.waiting),
            held=tuple(map(named, step.held)),
            sampled=tuple(replace(entry, request_id=short(entry.request_id)) for entry in step.sampled),
        )


@per_trace
def request_names(trace: Trace) -> RequestNames:
    """Return the names of a run's requests, given in the order of submission."""
    found = RequestNames()
    for span in trace.named(names.REQUEST_SPAN):
        found.shorten(str(span.attributes.get(names.REQUEST_ID, "")))
    return found


def without_shared_beginning(shown: Sequence[str]) -> list[str]:
    """Return names, for narrow cells, without what all begin with, up to a separator.

    Before, a server's names lose their kind, `chatcmpl-`, if that leaves all different.
    """
    if len(shown) < 2:
        return list(shown)
    without_kind = [_KIND.sub(r"\1", name) for name in shown]
    if len(set(without_kind)) == len(shown):
        shown = without_kind
    first, last = min(shown), max(shown)  # these two have least in common
    letters = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = _BEGINNING.match("".join(letter for letter, _ in letters))
    return list(shown) if shared is None else [name[shared.end() :] or name for name in shown]
