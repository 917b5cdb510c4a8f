"""The span of an engine step is completed: with what the calls within it gave, and what the tracker knows.

Everything a replay of the run needs is on it. Who gives what is said in step.py, runner.py and sampling.py.
"""

import json
from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec

from tracellm.probes.catalog.engine.runner import sampled_attributes, to_millionths
from tracellm.probes.catalog.engine.sampling import Likeliest, token_ids
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import processors_of
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.ranges import format_ranges

__all__ = ["complete_step", "told_candidates"]


def complete_step(tracker: RequestTracker, span: Span, executed: Any, given: dict[str, Any]) -> None:
    """Observe (probe.py) of a step: `executed` says whether its model was run, `given` what the calls within it
    gave."""
    tracker.steps += 1
    told = span.attributes
    told[names.STEP_INDEX] = tracker.steps
    if executed is False or (executed is None and "schedules" not in tracker.untold):
        told[names.STEP_KIND] = "empty"  # of one that ran its model, what was scheduled is given, or unknown
    if "scheduled" in given:
        _tell_schedule(told, given["scheduled"])
        if "endings" not in tracker.untold:
            _tell_released(told, tracker)
        tracker.took_part(told[names.STEP_REQUESTS], span)
    tracker.made_outputs(given.get("outputs_made", ()))
    if "ended" in given:
        told[names.STEP_FINISHED] = [request_id for request_id, _ in given["ended"]]
        told[names.STEP_FINISH_REASONS] = [reason for _, reason in given["ended"]]
        for request_id in told[names.STEP_FINISHED]:
            tracker.computed(request_id)
            tracker.queued.discard(request_id)
    if given.get("logits_shape"):
        told[names.STEP_LOGITS] = list(given["logits_shape"])
    if "sampled" in given:
        told.update(sampled_attributes(given["sampled"], tracker.decode))
        if "likeliest" in given["sampled"]:
            told[names.STEP_CANDIDATES] = told_candidates(given["sampled"]["likeliest"], tracker.decode)
        _tell_drawn(told, given["sampled"], given.get("drawn"), tracker)


def _tell_schedule(told: dict[str, Any], facts: dict[str, Any]) -> None:
    rows = {row[0]: row for row in facts["cached"]}
    rows |= {request_id: (request_id, computed, blocks, False) for request_id, computed, blocks in facts["new"]}
    new, resumed = [request_id for request_id, *_ in facts["new"]], facts["resumed"]
    from_cache = {*new, *resumed}
    ids = list(facts["tokens"])
    scheduled = [rows[request_id] for request_id in ids]
    # Of a request that begins, what is computed came from the prefix cache, in whole blocks at the front of its table.
    hits = [computed if request_id in from_cache else 0 for request_id, computed, _, _ in scheduled]
    tables = [
        _blocks(blocks, hit // facts["block_size"]) if blocks else _NO_BLOCKS
        for (_, _, blocks, _), hit in zip(scheduled, hits, strict=True)
    ]
    phases = ["decode" if decodes else "prefill" for *_, decodes in scheduled]
    told[names.STEP_KIND] = "mixed" if len(set(phases)) > 1 else phases[0] if phases else "empty"
    told[names.STEP_REQUESTS] = ids
    told[names.STEP_TOKENS] = list(facts["tokens"].values())
    told[names.STEP_COMPUTED] = [computed for _, computed, _, _ in scheduled]
    told[names.STEP_PHASES] = phases
    told[names.STEP_CACHED] = hits
    told[names.STEP_CACHED_BLOCKS] = [cached for cached, _ in tables]
    told[names.STEP_NEW_BLOCKS] = [new for _, new in tables]
    told[names.STEP_NEW] = new
    told[names.STEP_RESUMED] = [request_id for request_id in ids if request_id in resumed]
    told[names.STEP_PREEMPTED] = [request_id for request_id, code, _ in facts["held"] if code == "preempted"]
    told[names.STEP_RELEASED] = facts["released"]
    told[names.STEP_RUNNING] = facts["running"]
    told[names.STEP_WAITING] = facts["waiting"]
    if facts["num_waiting"] > len(facts["waiting"]):
        told[names.STEP_NUM_WAITING] = facts["num_waiting"]
    told[names.STEP_HELD] = [request_id for request_id, _, _ in facts["held"]]
    told[names.STEP_HELD_REASONS] = [code for _, code, _ in facts["held"]]
    told[names.STEP_HELD_DETAILS] = [_details(numbers) for _, _, numbers in facts["held"]]
    told[names.STEP_BUDGET] = facts["budget"]
    told[names.STEP_BLOCKS_FREE] = facts["free"]
    told[names.STEP_BLOCKS_TOTAL] = facts["total"]


def _details(numbers: dict[str, int | str]) -> str:
    """The numbers as `name=value name=value`."""
    return " ".join(f"{name}={value}" for name, value in numbers.items())


def _tell_released(told: dict[str, Any], tracker: RequestTracker) -> None:
    """Of the requests that the workers are to forget, those that no step ended were aborted."""
    told[names.STEP_ABORTED] = [request_id for request_id in told[names.STEP_RELEASED] if request_id in tracker.queued]
    tracker.queued.difference_update(told[names.STEP_ABORTED])
    tracker.queued.update(told[names.STEP_RUNNING], told[names.STEP_WAITING])


def _blocks(groups: list[list[int]], num_cached: int) -> tuple[str, str]:
    """Of the tables of all groups of layers, the blocks that came from the cache and those that are new.

    Block 0 stands where a group needs none: a sliding window has left those tokens behind.
    """
    if not any(groups):  # as most times
        return _NO_BLOCKS
    cached = (block for table in groups for block in table[:num_cached] if block)
    new = (block for table in groups for block in table[num_cached:] if block)
    return format_ranges(cached), format_ranges(new)


_NO_BLOCKS = "", ""


def _tell_drawn(told: dict[str, Any], sampled: dict[str, Any], drawn: Any, tracker: RequestTracker) -> None:
    """What acted on the logits before the tokens were drawn, and what that left; nothing where nothing acted."""
    if not any(map(any, (asked for asked, _ in sampled["asked"]))):
        return
    processors = [processors_of(*one) for one in sampled["asked"]]
    if not any(processors):
        return
    told[names.STEP_PROCESSORS] = [" ".join(of_row) for of_row in processors]
    if drawn is None or "likeliest" not in sampled:
        return
    rows, chances, candidates = sampled["rows"], sampled["probabilities"], told[names.STEP_CANDIDATES]
    told[names.STEP_LEFT] = [drawn["left"][row] for row in rows]
    if "probabilities" in drawn:  # else the model's own were not changed
        chances = [drawn["probabilities"][row] for row in rows]
        of_all = told_candidates(drawn["likeliest"], tracker.decode)
        candidates = [of_all[row] for row in rows]
    told[names.STEP_DRAWN_PROBS] = to_millionths(chances)
    told[names.STEP_DRAWN_CANDIDATES] = candidates


def told_candidates(likeliest: Likeliest, decode: Callable[[int], str] | None) -> list[str]:
    """Of each row the likeliest tokens as JSON, `[[token id, text, probability], ...]`."""
    ends = iter(_ends([probability for row in likeliest[0] for probability in row]))
    begins = _begins_with(decode).__getitem__
    return [f"[{','.join([begins(id) + next(ends) for id in row])}]" for row in token_ids(likeliest)]


def _ends(probabilities: list[float]) -> list[str]:
    """The JSON that candidates with these probabilities end with; what is no number is told as such."""
    told = to_millionths(probabilities)
    if all(map(isfinite, told)):  # all at once takes a third of the time
        return [f"{number}]" for number in msgspec.json.encode(told)[1:-1].decode().split(",")]
    return [f"{json.dumps(number)}]" for number in told]


class _Begins(dict[int, str]):
    """The JSON that a candidate begins with, by its token id."""

    def __init__(self, decode: Callable[[int], str] | None) -> None:
        super().__init__()
        self.decode = decode

    def __missing__(self, token_id: int) -> str:
        if len(self) >= _MOST_TOKENS:
            self.clear()
        text = "" if self.decode is None else self.decode(token_id)
        try:
            begin = msgspec.json.encode([token_id, text]).decode()[:-1]
        except ValueError:  # half of a surrogate pair
            begin = json.dumps([token_id, text])[:-1]
        self[token_id] = f"{begin},"
        return self[token_id]


_MOST_TOKENS = 32_768
_begins = _Begins(None)


def _begins_with(decode: Callable[[int], str] | None) -> _Begins:
    """Those of the tokenizer that was last in use; mostly there is but one."""
    global _begins
    if _begins.decode is not decode:
        _begins = _Begins(decode)
    return _begins
