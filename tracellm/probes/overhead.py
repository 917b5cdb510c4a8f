"""What recording cost: how long a probe takes here and now, and what all processes of a run spent together."""

import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tracellm.probes.context.call_context import state
from tracellm.probes.record.recorder import Recorder
from tracellm.probes.spans.converter import Conversion
from tracellm.probes.wrapping.probe import Probe
from tracellm.probes.wrapping.summary import arguments_and_result
from tracellm.probes.wrapping.wrapper import wrap

__all__ = ["spent", "together", "writer_cost"]


def _seconds_per_call(calls: int = 500, repeats: int = 5) -> float:
    """Seconds that a probe adds to a call here and now: a probed function of two numbers against the bare one."""

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


def spent(calls: int, at_rest: bool = True) -> dict[str, Any]:
    """Costs of so many calls, without their captures. Only `at_rest`, while nothing is recorded, a call's cost can be
    measured: that of a call here and now times their number.
    """
    per_call = _seconds_per_call() if at_rest else 0.0
    return {"calls": calls, "seconds": round(calls * per_call, 6), "per_call_us": round(per_call * 1e6, 3)}


def together(
    own: Mapping[str, Any], others: Iterable[Mapping[str, Any]], conversion: Conversion | None, seconds: float
) -> dict[str, Any]:
    """The stats of the main process with those of the others, and what their conversion found.

    Calls and seconds are summed, problems follow each other. `share` is what probes and recorders took of the run's
    `seconds` on the clock, so of several busy processes it may be more than any one's own.
    """
    stats = dict(own)
    for other in others:
        stats["installed"] = max(stats["installed"], other["installed"])
        stats["engine"] = stats["engine"] or other["engine"]
        stats["missing"] += [one for one in other["missing"] if one not in stats["missing"]]
        stats["calls"] += other["calls"]
        unmeasured = 0.0 if other["per_call_us"] else other["calls"] * stats["per_call_us"] / 1e6
        stats["seconds"] += other["seconds"] + unmeasured
        stats["writer"] = _writers(stats["writer"], other["writer"])
        stats["problems"] += [one for one in other["problems"] if one not in stats["problems"]]
    if conversion is not None:
        stats["seconds"] *= conversion.calls / (stats["calls"] or 1)  # records that are no calls took nothing
        stats["seconds"] += conversion.capture_ns / 1e9
        stats["calls"] = conversion.calls
        stats["let_go"] = conversion.let_go
        stats["deep_steps"] = conversion.deep_steps
        stats["spans"] = conversion.spans
        stats["conversion"] = {
            "seconds": round(conversion.seconds, 6),
            "us_per_span": round(conversion.seconds / conversion.spans * 1e6, 3) if conversion.spans else 0.0,
        }
        stats["problems"] += [one for one in conversion.problems if one not in stats["problems"]]
    stats["seconds"] = round(stats["seconds"], 6)
    stats["share"] = round((stats["seconds"] + stats["writer"]["seconds"]) / seconds, 6) if seconds else 0.0
    return stats


def writer_cost(recorder: Recorder) -> dict[str, Any]:
    """Work of a recorder, and its costs."""
    calls, seconds = recorder.calls, recorder.seconds
    return {
        "calls": calls,
        "bytes": recorder.bytes,
        "seconds": round(seconds, 6),
        "us_per_call": round(seconds / calls * 1e6, 3) if calls else 0.0,
        "longest_ms": round(recorder.longest_seconds * 1e3, 3),
        "lost": recorder.lost,
    }


def _writers(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Work of the recorders of two processes together."""
    both = {name: one[name] + other[name] for name in ("calls", "bytes", "seconds", "lost")}
    both["seconds"] = round(both["seconds"], 6)
    both["us_per_call"] = round(both["seconds"] / both["calls"] * 1e6, 3) if both["calls"] else 0.0
    return {**both, "longest_ms": max(one["longest_ms"], other["longest_ms"])}
