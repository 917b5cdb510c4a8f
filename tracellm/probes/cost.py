"""What recording cost: how long a probe takes here and now, and what all processes of a run spent together."""

import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tracellm.probes.brief import arguments_and_result
from tracellm.probes.spec import Probe
from tracellm.probes.state import state
from tracellm.probes.wrap import wrap

__all__ = ["spent", "together"]


def _seconds_per_call(calls: int = 500, repeats: int = 5) -> float:
    """What a probe adds to a call here and now: a probed function of two numbers against the bare one."""

    def bare(first: int, second: int) -> int:
        return first

    capture, _ = arguments_and_result(bare, "")
    probed = wrap(bare, Probe(method="bare", level="request", capture=capture))
    costs = []
    before = state.append, state.clock
    for _ in range(repeats):
        times = []
        for function in (bare, probed):
            records: list[Any] = []
            state.append, state.clock = records.append, time.perf_counter_ns
            start = time.thread_time_ns()
            for _ in range(calls):
                function(1, 2)
            times.append(time.thread_time_ns() - start)
            state.append, state.clock = before
        costs.append(max(0, times[1] - times[0]) / calls / 1e9)
    return statistics.median(costs)


def spent(calls: int, capture_ns: int, at_rest: bool = True) -> dict[str, Any]:
    """What so many calls and captures cost. Only `at_rest`, while nothing is recorded, a call's cost can be measured.

    The time spent in probes on the hot path is estimated as the number of calls times the cost of one, which is
    measured here and now, plus the measured time of captures.
    """
    per_call = _seconds_per_call() if at_rest else 0.0
    in_probes = calls * per_call + capture_ns / 1e9
    return {
        "calls": calls,
        "seconds": round(in_probes, 6),
        "per_call_us": round(per_call * 1e6, 3),
    }


def together(own: Mapping[str, Any], others: Iterable[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """The stats of the main process with those of the others: calls and seconds are summed, problems follow each other.

    `share` is what probes, and writers within the recorded processes, took of the run's `seconds` on the clock, so of
    several busy processes it may be more than any one's own.
    """
    stats = dict(own)
    for other in others:
        stats["installed"] = max(stats["installed"], other["installed"])
        stats["engine"] = stats["engine"] or other["engine"]
        stats["missing"] += [one for one in other["missing"] if one not in stats["missing"]]
        stats["calls"] += other["calls"]
        stats["let_go"] += other["let_go"]
        if other["deep_steps"] is not None:  # it was thinned, after so many steps: none, if it has no engine
            stats["deep_steps"] = max(stats["deep_steps"] or 0, other["deep_steps"])
        unmeasured = 0.0 if other["per_call_us"] else other["calls"] * stats["per_call_us"] / 1e6
        stats["seconds"] = round(stats["seconds"] + other["seconds"] + unmeasured, 6)
        stats["writer"] = _writers(stats["writer"], other["writer"])
        stats["problems"] += [one for one in other["problems"] if one not in stats["problems"]]
    spent = stats["seconds"] + stats["writer"]["seconds_within"]
    stats["share"] = round(spent / seconds, 6) if seconds else 0.0
    return stats


def _writers(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """What the writers of two processes cost together."""
    spans, seconds = one["spans"] + other["spans"], one["seconds"] + other["seconds"]
    return {
        "spans": spans,
        "seconds": round(seconds, 6),
        "us_per_span": round(seconds / spans * 1e6, 3) if spans else 0.0,
        "seconds_within": round(one["seconds_within"] + other["seconds_within"], 6),
        "worst_pause_ms": max(one["worst_pause_ms"], other["worst_pause_ms"]),
        "held_up_s": round(one["held_up_s"] + other["held_up_s"], 6),
    }
