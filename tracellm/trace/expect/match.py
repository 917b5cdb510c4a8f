"""An expectation held against a recording: is it, call for call, a part of what happened, in the same order?

The earliest call that fits is taken for each arrow in turn; if that finds all, all are there. Otherwise they may still
be there in an order that only chance decided, as between processes (`causes.py`). If not, the most arrows that can be
found in order are counted, and those left out get a reason: never called, called by or on another, or elsewhere.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import inf

from tracellm.trace import names
from tracellm.trace.expect.calls import ANYONE, Call, Causes, calls
from tracellm.trace.expect.read import Arrow, Expectation, plain
from tracellm.trace.model import Trace

__all__ = ["Miss", "Result", "check"]

_MODEL = re.compile(r"X*Model")
"""The name in a diagram for the model's class, whichever that is."""

_SCRIPT = re.compile(r"(?:the |your )?(?:user|script|program)|用户|脚本|程序", re.IGNORECASE)
"""Names in a diagram for the script, which a recording has under the name of its file."""

_Chain = tuple[int, int, "_Chain"] | None  # an arrow, the call that it is, and the same of the arrows after


@dataclass(frozen=True, slots=True)
class Miss:
    """An arrow that has no place in the recording.

    Attributes:
        arrow: what was expected.
        before: the last arrow before it that was found, and where; None when it is the first.
        after: the same for the next one after it.
        elsewhere: where such a call is, though in another place of the order.
        others: calls of this name that are made by others, or on others.
        near: names that may be meant, where no call has this one.
        is_partly_found: whether such a call is there in another place of the order, or with one other lifeline.
    """

    arrow: Arrow
    before: tuple[Arrow, Call] | None = None
    after: tuple[Arrow, Call] | None = None
    elsewhere: tuple[Call, ...] = ()
    others: tuple[Call, ...] = ()
    near: tuple[str, ...] = ()
    is_partly_found: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check.

    Attributes:
        total: how many calls were looked for.
        misses: those of them that were not found in order.
        needs: how many calls were not looked for, by what they need.
        unknown: lifelines of the expectation on which nothing was recorded, with those that may be meant.
    """

    total: int
    misses: tuple[Miss, ...] = ()
    needs: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def matched(self) -> int:
        """The number of arrows that were found."""
        return self.total - len(self.misses)

    @property
    def score(self) -> float:
        """The number of arrows that were found, each that was partly found counted half."""
        return self.matched + sum(miss.is_partly_found for miss in self.misses) / 2


def check(trace: Trace, expectation: Expectation, phase: str = "") -> Result:
    """Hold an expectation, or one phase of it, against a recording."""
    return _Check(trace, expectation, phase).result()


class _Check:
    def __init__(self, trace: Trace, expectation: Expectation, phase: str) -> None:
        models = {str(span.attributes[names.LOAD_ARCHITECTURE]) for span in trace.spans
                  if names.LOAD_ARCHITECTURE in span.attributes}  # fmt: skip
        self._trace = trace
        self._models = frozenset(models)
        scripts = {plain(span.name) for span in trace.spans if span.attributes.get(names.LIFELINE) == span.name}
        self._scripts = frozenset(scripts)
        self._classes = frozenset(plain(span.lifeline) for span in trace.spans)
        self._lifelines = {name: self._named(told) for name, told in expectation.lifelines.items()}
        wanted = [arrow for arrow in expectation.arrows if not phase or arrow.phase == phase]
        self._arrows = [arrow for arrow in wanted if not arrow.needs]
        self._needs: dict[str, int] = {}
        for arrow in wanted:
            if arrow.needs:
                self._needs[arrow.needs] = self._needs.get(arrow.needs, 0) + 1
        self._known = frozenset().union(*self._lifelines.values())
        self._drawn: dict[str, list[Arrow]] = {}
        for arrow in expectation.arrows:
            for lifeline in self._named(arrow.target):
                self._drawn.setdefault(lifeline, []).append(arrow)
        self._calls = calls(trace, self._known, self._is_drawn, expectation.partial)
        self._recorded = {name for call in self._calls for name in (*call.targets, *call.callers)}
        self._by_name: dict[str, list[int]] = {}
        for i, call in enumerate(self._calls):
            for name in call.names:
                self._by_name.setdefault(name, []).append(i)
        self._defined = {(call.owner, name) for call in self._calls for name in call.names}
        self._methods: dict[str, set[str]] = {}
        for call in self._calls:
            for lifeline in call.targets:
                self._methods.setdefault(lifeline, set()).update(call.names)
        self._places_of: dict[tuple[object, ...], list[int]] = {}

    def result(self) -> Result:
        places = [self._places(arrow) for arrow in self._arrows]
        found = _in_turn(places)
        if len(found) < len(places):
            found = max(_most(places), Causes(self._trace, self._calls).in_turn(places), key=len)
        misses = [self._miss(i, found) for i in range(len(places)) if i not in found]
        return Result(len(places), tuple(misses), self._needs, self._unknown())

    def _named(self, told: Iterable[str]) -> frozenset[str]:
        """Lifelines as the recording calls them."""
        told = frozenset(told)
        if self._is_script(told):
            return told | self._scripts
        return told | self._models if any(map(_MODEL.fullmatch, told)) else told

    def _is_script(self, told: frozenset[str]) -> bool:
        """Whether a lifeline stands for the script; a class of such a name stands for itself."""
        return any(map(_SCRIPT.fullmatch, told)) and not (told - self._scripts) & self._classes

    def _is_drawn(self, lifeline: str, called: tuple[str, ...]) -> bool:
        return any(_is_called(arrow, called) for arrow in self._drawn.get(lifeline, ()))

    def _places(self, arrow: Arrow) -> list[int]:
        """The calls that an arrow may stand for, in order."""
        key = arrow.source, arrow.target, arrow.names, arrow.owner, arrow.held
        if key not in self._places_of:
            source, target = self._named(arrow.source), self._named(arrow.target)
            self._places_of[key] = [
                i
                for i in self._of_name(arrow)
                if self._is_source(self._calls[i], source)
                and self._is_target(arrow, self._calls[i], target)
                and self._is_owner(arrow, self._calls[i])
            ]
        return self._places_of[key]

    def _of_name(self, arrow: Arrow) -> list[int]:
        found: set[int] = set()
        for name in arrow.names:
            if name.endswith("…"):
                for known, places in self._by_name.items():
                    if known.startswith(name[:-1]):
                        found.update(places)
            else:
                found.update(self._by_name.get(name, ()))
        return sorted(found)

    def _is_source(self, call: Call, source: frozenset[str]) -> bool:
        """Whether it was made by the right lifeline; the sender of an HTTP request is not recorded."""
        if call.callers & source:
            return True
        return ANYONE in call.callers and (self._is_script(source) or not source & self._recorded)

    def _is_target(self, arrow: Arrow, call: Call, target: frozenset[str]) -> bool:
        """Whether it was called on the right lifeline; what that holds may be of a class that is not drawn."""
        if call.targets & target:
            return True
        return bool(arrow.held) and arrow.source == arrow.target and not call.targets & self._known

    def _is_owner(self, arrow: Arrow, call: Call) -> bool:
        """Whether the class that was named defines the method, or if none of that name does, has it."""
        if not arrow.owner or call.owner == arrow.owner:
            return True
        return arrow.owner in call.targets and not any((arrow.owner, name) in self._defined for name in arrow.names)

    def _miss(self, index: int, found: dict[int, int]) -> Miss:
        arrow = self._arrows[index]
        before = max((i for i in found if i < index), default=None)
        after = min((i for i in found if i > index), default=None)
        elsewhere = tuple(self._calls[i] for i in self._places(arrow)[:3])
        others: tuple[Call, ...] = ()
        near: list[str] = []
        partly = bool(elsewhere)
        if not elsewhere:
            seen: dict[tuple[object, ...], Call] = {}
            target, source = self._named(arrow.target), self._named(arrow.source)
            for call in (self._calls[i] for i in self._of_name(arrow)):
                # Every class has an `__init__`: those of others mean nothing.
                if not arrow.names[0].startswith("__") or call.targets & target or call.callers & source:
                    seen.setdefault((call.callers, call.targets, call.owner), call)
            others = tuple(sorted(seen.values(), key=lambda call: not call.targets & target)[:3])
            partly = any(call.targets & target or call.callers & source for call in seen.values())
            if not others:
                there = {name for lifeline in target for name in self._methods.get(lifeline, ())}
                near = get_close_matches(arrow.names[0], sorted(there), n=2, cutoff=0.6)
        return Miss(arrow, self._at(before, found), self._at(after, found), elsewhere, others, tuple(near), partly)

    def _at(self, index: int | None, found: dict[int, int]) -> tuple[Arrow, Call] | None:
        return None if index is None else (self._arrows[index], self._calls[found[index]])

    def _unknown(self) -> dict[str, tuple[str, ...]]:
        """Lifelines that calls were looked for on, or from, and that the recording does not have."""
        unknown: dict[str, tuple[str, ...]] = {}
        for name, told in self._lifelines.items():
            used = any(
                told in (self._named(arrow.source), self._named(arrow.target)) and not self._places(arrow)
                for arrow in self._arrows
            )
            if used and not told & self._recorded:
                near = get_close_matches(min(told, default=name), sorted(self._recorded - {ANYONE}), n=2, cutoff=0.6)
                unknown[name] = tuple(near)
        return unknown


def _is_called(arrow: Arrow, called: Sequence[str]) -> bool:
    return any(
        name in called or (name.endswith("…") and any(one.startswith(name[:-1]) for one in called))
        for name in arrow.names
    )


def _next(places: Sequence[int], after: int) -> int | None:
    at = bisect_right(places, after)
    return places[at] if at < len(places) else None


def _in_turn(places: Sequence[Sequence[int]]) -> dict[int, int]:
    """The earliest call for each arrow, after that for the one before, as far as that goes."""
    found: dict[int, int] = {}
    last = -1
    for i, at in enumerate(places):
        place = _next(at, last)
        if place is None:
            break
        found[i] = last = place
    return found


def _most(places: Sequence[Sequence[int]]) -> dict[int, int]:
    """The most arrows that can be found in order, each with its call; of equally many those that come first.

    It goes backwards: `begins[k]` is the latest call with which the last k arrows that are found can begin. The time is
    in proportion to the square of the arrows, whatever the number of calls.
    """
    begins: list[tuple[float, _Chain]] = [(inf, None)]
    for i in range(len(places) - 1, -1, -1):
        if not places[i]:
            continue
        for k in range(len(begins) - 1, -1, -1):
            begin, chain = begins[k]
            at = bisect_left(places[i], begin) - 1
            if at < 0:
                continue
            place = places[i][at]
            if k + 1 == len(begins):
                begins.append((place, (i, place, chain)))
            elif place >= begins[k + 1][0]:
                begins[k + 1] = place, (i, place, chain)
    found: dict[int, int] = {}
    chain = begins[-1][1]
    while chain is not None:
        i, place, chain = chain
        found[i] = place
    return found
