"""`tracellm bench latency`: one batch of requests, how long until the first token, between tokens, and until the end.

vLLM: vllm/benchmarks/latency.py, which takes the whole only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tracellm.bench.figures import percentile, plain_table
from tracellm.bench.machine import measure_ceilings
from tracellm.bench.throughput import headlines
from tracellm.bench.trial import Trial
from tracellm.report.texts import Language, text

__all__ = ["latency", "latency_table", "percentiles"]

_PERCENTS = (50, 90, 99)


def latency(trial: Trial, lang: Language, *, repeats: int, as_json: bool) -> str:
    """Measure: the figures for people, or as JSON."""
    ceilings = measure_ceilings(trial.model.dtype, trial.device)
    trial.seconds(trial.workload)  # warm
    times: dict[str, list[float]] = {"first": [], "between": [], "whole": []}
    for _ in range(repeats):
        last: dict[str, float] = {}
        elapsed = 0.0
        for elapsed, outputs in trial.steps(trial.workload):
            for output in outputs:
                before = last.get(output.request_id)
                times["first" if before is None else "between"].append(elapsed - (before or 0.0))
                last[output.request_id] = elapsed
        times["whole"].append(elapsed)
    if as_json:
        return json.dumps({"ceilings": asdict(ceilings), "seconds": percentiles(times)}, indent=2)
    return f"{headlines(trial, ceilings, lang)}\n{latency_table(times, lang)}"


def percentiles(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """For each kind of time that was taken its percentiles, in the unit of the times."""
    return {name: {str(percent): percentile(of, percent) for percent in _PERCENTS} for name, of in times.items() if of}


def latency_table(times: Mapping[str, Sequence[float]], lang: Language) -> str:
    """Milliseconds, of times in seconds: a row for each kind that was taken, a column for each percentile."""
    rows = [
        [text(lang, f"bench.latency.{name}"), *(f"{value * 1e3:,.1f}" for value in of.values())]
        for name, of in percentiles(times).items()
    ]
    return plain_table([text(lang, "bench.latency.head"), *(f"p{percent}" for percent in _PERCENTS)], rows)
