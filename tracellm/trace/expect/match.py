"""The comparison of an expectation with a recording: does it contain these calls, in this order?

For each arrow in turn, the earliest call that fits is taken; often that finds all. If not, they may still be there in
another order, since the order between processes is partly chance (`Causes`). Otherwise, as many arrows as possible are
matched in order. The others get a reason: never called, called by or on another lifeline, or out of order.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
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
"""Placeholder names in a diagram for the model's class."""

_PROCESSOR = re.compile(r"(?:Base|\w*X+)MultiModalProcessor")
"""Placeholder names in a diagram for the class of the model's multimodal processor."""
_MULTIMODAL = "_process_multimodal"
"""Function that each prompt with images or sounds goes through, and no other."""

_SCRIPT = re.compile(r"(?:the |your )?(?:user|script|program)|用户|脚本|程序", re.IGNORECASE)
"""Names in a diagram for the script, which a recording has under the name of its file."""

_Chain = tuple[int, int, "_Chain"] | None  # an arrow, its call, and the chain of the arrows after


@dataclass(frozen=True, slots=True)
class Miss:
    """An arrow without a call in the recording.

    Attributes:
        arrow: the expected call.
        before: the last arrow before it that was found, with its call, or None.
        after: the next arrow after it that was found, with its call, or None.
        elsewhere: matching calls that are out of order.
        others: calls of this name with another caller or callee.
        near: similar names, if no call has this one.
        is_partly_found: a matching call is out of order, or has one other lifeline.
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
        total: number of calls searched.
        misses: those not found in order.
        needs: number of calls not looked for, by their requirement.
        unknown: lifelines of the expectation without any recorded call, with similar names.
    """

    total: int
    misses: tuple[Miss, ...] = ()
    needs: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def matched(self) -> int:
        """Number of arrows found."""
        return self.total - len(self.misses)

    @property
    def score(self) -> float:
        """Number of arrows found, those partly found counting half."""
        return self.matched + sum(miss.is_partly_found for miss in self.misses) / 2


def check(trace: Trace, expectation: Expectation, phase: str = "") -> Result:
    """Compare an expectation, or one phase of it, with a recording."""
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
        self._lifelines = {name: self._named(lifeline) for name, lifeline in expectation.lifelines.items()}
        wanted = [arrow for arrow in expectation.arrows if not phase or arrow.phase == phase]
        has_items = any(span.name.rpartition(".")[2] == _MULTIMODAL for span in trace.spans)
        met = {"", "mm"} if has_items else {""}
        self._arrows = [arrow for arrow in wanted if arrow.needs in met]
        self._needs = dict(Counter(arrow.needs for arrow in wanted if arrow.needs not in met))
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
        self._candidates_of: dict[tuple[object, ...], list[int]] = {}

    def result(self) -> Result:
        candidates = [self._candidates(arrow) for arrow in self._arrows]
        found = _in_turn(candidates)
        if len(found) < len(candidates):
            found = max(_most(candidates), Causes(self._trace, self._calls).in_turn(candidates), key=len)
        misses = [self._miss(i, found) for i in range(len(candidates)) if i not in found]
        return Result(len(candidates), tuple(misses), self._needs, self._unknown())

    def _named(self, lifeline: Iterable[str]) -> frozenset[str]:
        """Return the names of a lifeline in the recording."""
        lifeline = frozenset(lifeline)
        if self._is_script(lifeline):
            return lifeline | self._scripts
        if any(map(_PROCESSOR.fullmatch, lifeline)):
            return lifeline | {name for name in self._classes if name.endswith("MultiModalProcessor")}
        return lifeline | self._models if any(map(_MODEL.fullmatch, lifeline)) else lifeline

    def _is_script(self, lifeline: frozenset[str]) -> bool:
        """Return whether a lifeline stands for the script; a recorded class of such a name stands for itself."""
        return any(map(_SCRIPT.fullmatch, lifeline)) and not (lifeline - self._scripts) & self._classes

    def _is_drawn(self, lifeline: str, called: tuple[str, ...]) -> bool:
        return any(_is_called(arrow, called) for arrow in self._drawn.get(lifeline, ()))

    def _candidates(self, arrow: Arrow) -> list[int]:
        """Return the calls that an arrow may stand for, in order."""
        key = arrow.source, arrow.target, arrow.names, arrow.owner, arrow.held
        if key not in self._candidates_of:
            source, target = self._named(arrow.source), self._named(arrow.target)
            self._candidates_of[key] = [
                i
                for i in self._of_name(arrow)
                if self._is_source(self._calls[i], source)
                and self._is_target(arrow, self._calls[i], target)
                and self._is_owner(arrow, self._calls[i])
            ]
        return self._candidates_of[key]

    def _of_name(self, arrow: Arrow) -> list[int]:
        found: set[int] = set()
        for name in arrow.names:
            if name.endswith("…"):
                for known, candidates in self._by_name.items():
                    if known.startswith(name[:-1]):
                        found.update(candidates)
            else:
                found.update(self._by_name.get(name, ()))
        return sorted(found)

    def _is_source(self, call: Call, source: frozenset[str]) -> bool:
        """Return whether the caller is right; the sender of an HTTP request is not recorded."""
        if call.callers & source:
            return True
        return ANYONE in call.callers and (self._is_script(source) or not source & self._recorded)

    def _is_target(self, arrow: Arrow, call: Call, target: frozenset[str]) -> bool:
        """Return whether the callee is right. An object held by the caller may have a class that is not drawn."""
        if call.targets & target:
            return True
        return bool(arrow.held) and arrow.source == arrow.target and not call.targets & self._known

    def _is_owner(self, arrow: Arrow, call: Call) -> bool:
        """Return whether the named class defines the method, or has it if no class of that name defines it."""
        if not arrow.owner or call.owner == arrow.owner:
            return True
        return arrow.owner in call.targets and not any((arrow.owner, name) in self._defined for name in arrow.names)

    def _miss(self, index: int, found: dict[int, int]) -> Miss:
        arrow = self._arrows[index]
        before = max((i for i in found if i < index), default=None)
        after = min((i for i in found if i > index), default=None)
        elsewhere = tuple(self._calls[i] for i in self._candidates(arrow)[:3])
        others: tuple[Call, ...] = ()
        near: list[str] = []
        partly = bool(elsewhere)
        if not elsewhere:
            seen: dict[tuple[object, ...], Call] = {}
            target, source = self._named(arrow.target), self._named(arrow.source)
            for call in (self._calls[i] for i in self._of_name(arrow)):
                # every class has an `__init__`: those of unrelated classes are no hint
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
        """Return the lifelines with an unmatched arrow that the recording does not have."""
        unknown: dict[str, tuple[str, ...]] = {}
        for name, lifeline in self._lifelines.items():
            used = any(
                lifeline in (self._named(arrow.source), self._named(arrow.target)) and not self._candidates(arrow)
                for arrow in self._arrows
            )
            if used and not lifeline & self._recorded:
                near = get_close_matches(
                    min(lifeline, default=name), sorted(self._recorded - {ANYONE}), n=2, cutoff=0.6
                )
                unknown[name] = tuple(near)
        return unknown


def _is_called(arrow: Arrow, called: Sequence[str]) -> bool:
    return any(
        name in called or (name.endswith("…") and any(other.startswith(name[:-1]) for other in called))
        for name in arrow.names
    )


def _in_turn(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the earliest call for each arrow, each after the one before, until one has none."""
    found: dict[int, int] = {}
    last = -1
    for i, at in enumerate(candidates):
        place = bisect_right(at, last)
        if place == len(at):
            break
        found[i] = last = at[place]
    return found


def _most(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the longest list of arrows that can be found in order, with their calls; of several, the first.

    It goes backwards: `begins[k]` is the latest call at which k matched arrows can begin. The time is
    quadratic in the number of arrows and independent of the number of calls.
    """
    begins: list[tuple[float, _Chain]] = [(inf, None)]
    for i in range(len(candidates) - 1, -1, -1):
        if not candidates[i]:
            continue
        for k in range(len(begins) - 1, -1, -1):
            begin, chain = begins[k]
            at = bisect_left(candidates[i], begin) - 1
            if at < 0:
                continue
            index = candidates[i][at]
            if k + 1 == len(begins):
                begins.append((index, (i, index, chain)))
            elif index >= begins[k + 1][0]:
                begins[k + 1] = index, (i, index, chain)
    found: dict[int, int] = {}
    chain = begins[-1][1]
    while chain is not None:
        i, index, chain = chain
        found[i] = index
    return found
