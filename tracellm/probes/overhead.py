"""Cost of a recording: of a probe here and now, and of all processes of a run together."""

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

__all__ = ["call_cost", "combined_stats", "writer_cost"]

_CALLS, _REPEATS = 500, 5


def _seconds_per_call() -> float:
    """Measure the seconds that a probe adds to a call, with a function of two numbers."""

    def bare(first: int, second: int) -> int:
        return first

    capture, _ = arguments_and_result(bare, "")
    probed = wrap(bare, Probe(method="bare", level="request", capture=capture))
    costs = []
    before = state.append, state.clock
    for _ in range(_REPEATS):
        times = []
        for function in (bare, probed):
            records: list[Any] = []
            state.append, state.clock = records.append, time.perf_counter_ns
            start = time.thread_time_ns()
            for _ in range(_CALLS):
                function(1, 2)
            times.append(time.thread_time_ns() - start)
            state.append, state.clock = before
        costs.append(max(0, times[1] - times[0]) / _CALLS / 1e9)
    return statistics.median(costs)


def call_cost(calls: int, at_rest: bool = True) -> dict[str, Any]:
    """Return the cost of a number of calls without their captures: the measured cost of one, times the number.

    It can only be measured `at_rest`, while nothing is recorded.
    """
    per_call = _seconds_per_call() if at_rest else 0.0
    return {"calls": calls, "seconds": round(calls * per_call, 6), "per_call_us": round(per_call * 1e6, 3)}


def combined_stats(
    own: Mapping[str, Any], others: Iterable[Mapping[str, Any]], conversion: Conversion | None, seconds: float
) -> dict[str, Any]:
    """Return the main process's stats combined with those of the others and of the conversion.

    Calls and seconds are summed, problems are joined. `share` is the cost of probes and recorders relative to the run's
    `seconds` on the clock; with several busy processes it may exceed that of any one.
    """
    stats = dict(own)
    for other in others:
        stats["installed"] = max(stats["installed"], other["installed"])
        stats["engine"] = stats["engine"] or other["engine"]
        stats["missing"] += [target for target in other["missing"] if target not in stats["missing"]]
        stats["calls"] += other["calls"]
        unmeasured = 0.0 if other["per_call_us"] else other["calls"] * stats["per_call_us"] / 1e6
        stats["seconds"] += other["seconds"] + unmeasured
        stats["writer"] = _sum_writers(stats["writer"], other["writer"])
        stats["problems"] += [problem for problem in other["problems"] if problem not in stats["problems"]]
    if conversion is not None:
        stats["seconds"] *= conversion.calls / (stats["calls"] or 1)  # records that are not calls cost nothing
        stats["seconds"] += conversion.capture_ns / 1e9
        stats["calls"] = conversion.calls
        stats["let_go"] = conversion.dropped
        stats["deep_steps"] = conversion.deep_steps
        stats["spans"] = conversion.spans
        stats["conversion"] = {
            "seconds": round(conversion.seconds, 6),
            "us_per_span": round(conversion.seconds / conversion.spans * 1e6, 3) if conversion.spans else 0.0,
        }
        stats["problems"] += [problem for problem in conversion.problems if problem not in stats["problems"]]
    stats["seconds"] = round(stats["seconds"], 6)
    stats["share"] = round((stats["seconds"] + stats["writer"]["seconds"]) / seconds, 6) if seconds else 0.0
    return stats


def writer_cost(recorder: Recorder) -> dict[str, Any]:
    """Return what a recorder wrote, and what that cost."""
    calls, seconds = recorder.calls, recorder.seconds
    return {
        "calls": calls,
        "bytes": recorder.bytes,
        "seconds": round(seconds, 6),
        "us_per_call": round(seconds / calls * 1e6, 3) if calls else 0.0,
        "longest_ms": round(recorder.longest_seconds * 1e3, 3),
        "lost": recorder.lost,
    }


def _sum_writers(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    total = {name: first[name] + second[name] for name in ("calls", "bytes", "seconds", "lost")}
    total["seconds"] = round(total["seconds"], 6)
    total["us_per_call"] = round(total["seconds"] / total["calls"] * 1e6, 3) if total["calls"] else 0.0
    return {**total, "longest_ms": max(first["longest_ms"], second["longest_ms"])}
