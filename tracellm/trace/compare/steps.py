"""The steps of two runs, paired by their order, and what differs in each pair.

Requests are compared by their number, the position in the order of submission, not by their ids. Times are not
compared: they always differ.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tracellm.trace.compare.requests import RequestPair
from tracellm.trace.steps import Step

__all__ = ["FACETS", "StepPair", "step_pairs"]

_Numbers = Mapping[str, int]
"""Number of a request, by its id."""


@dataclass(frozen=True, slots=True)
class StepPair:
    """The `position`-th step of both runs, from 1; one of them is None if the other run has more steps.

    `differs` lists the FACETS that differ; for a step of one run alone, all of them.
    """

    position: int
    a: Step | None
    b: Step | None
    differs: tuple[str, ...]


def _requests(step: Step, numbers: _Numbers) -> Any:
    return [numbers.get(request.request_id) for request in step.requests]


def _tokens(step: Step, numbers: _Numbers) -> Any:
    return [
        (numbers.get(request.request_id), request.num_tokens, request.num_computed, request.prefix_hit_tokens)
        for request in step.requests
    ]


def _blocks(step: Step, numbers: _Numbers) -> Any:
    return [(numbers.get(request.request_id), request.new_blocks, request.cached_blocks) for request in step.requests]


def _sampled(step: Step, numbers: _Numbers) -> Any:
    return [(numbers.get(token.request_id), token.token_id) for token in step.sampled]


FACETS: dict[str, Callable[[Step, _Numbers], Any]] = {
    "kind": lambda step, numbers: step.kind,
    "requests": _requests,
    "tokens": _tokens,
    "blocks": _blocks,
    "sampled": _sampled,
}
"""Comparison keys of a step, by facet: kind, requests, their tokens and KV cache blocks, and sampled tokens."""


def step_pairs(steps_a: Sequence[Step], steps_b: Sequence[Step], requests: Sequence[RequestPair]) -> list[StepPair]:
    """Pair the steps of both runs, the first with the first and so on."""
    numbers_a = {pair.a.id: pair.number for pair in requests if pair.a is not None}
    numbers_b = {pair.b.id: pair.number for pair in requests if pair.b is not None}
    return [
        StepPair(position, a, b, _differs(a, b, numbers_a, numbers_b))
        for position, (a, b) in enumerate(zip_longest(steps_a, steps_b), start=1)
    ]


def _differs(a: Step | None, b: Step | None, numbers_a: _Numbers, numbers_b: _Numbers) -> tuple[str, ...]:
    if a is None or b is None:
        return tuple(FACETS)
    found = [name for name, facet in FACETS.items() if facet(a, numbers_a) != facet(b, numbers_b)]
    if "sampled" in found and _lacks_tokens(a, b):
        found.remove("sampled")
    return tuple(found)


def _lacks_tokens(a: Step, b: Step) -> bool:
    """Return whether a recording lacks the sampled tokens, and the numbers of sampled tokens are equal."""
    return len(a.sampled) == len(b.sampled) and any(token.token_id is None for token in (*a.sampled, *b.sampled))
