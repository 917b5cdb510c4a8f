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


def spent(calls: int, capture_ns: int, seconds: float) -> dict[str, Any]:
    """What so many calls and captures cost in a run of `seconds`.

    The time spent in probes on the hot path is estimated as the number of calls times the cost of one, which is
    measured here and now, plus the measured time of captures; `share` is that of the run's wall time.
    """
    per_call = _seconds_per_call()
    in_probes = calls * per_call + capture_ns / 1e9
    return {
        "calls": calls,
        "seconds": round(in_probes, 6),
        "share": round(in_probes / seconds, 6) if seconds else 0.0,
        "per_call_us": round(per_call * 1e6, 3),
    }


def together(own: Mapping[str, Any], others: Iterable[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """The stats of the main process with those of the others: calls and seconds are summed, problems follow each other.

    The share is that of the run's `seconds`, so of several busy processes it may be more than any one's own.
    """
    stats = dict(own)
    for other in others:
        stats["installed"] = max(stats["installed"], other["installed"])
        stats["missing"] += [one for one in other["missing"] if one not in stats["missing"]]
        stats["calls"] += other["calls"]
        stats["seconds"] = round(stats["seconds"] + other["seconds"], 6)
        stats["problems"] += [one for one in other["problems"] if one not in stats["problems"]]
    stats["share"] = round(stats["seconds"] / seconds, 6) if seconds else 0.0
    return stats
