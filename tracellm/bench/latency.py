"""`tracellm bench latency`: time to the first token, between tokens, and to the end, for one batch of requests.

vLLM: vllm/benchmarks/latency.py, which measures the whole batch only.
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
    """Measure, and return the figures as text or JSON."""
    ceilings = measure_ceilings(trial.model.dtype, trial.device)
    trial.seconds(trial.workload)  # warm up
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
    """Return the percentiles of each kind of time that was measured, in its unit."""
    return {
        name: {str(percent): percentile(values, percent) for percent in _PERCENTS}
        for name, values in times.items()
        if values
    }


def latency_table(times: Mapping[str, Sequence[float]], lang: Language) -> str:
    """Return a table of percentiles in milliseconds, from times in seconds: one row for each kind of time."""
    rows = [
        [text(lang, f"bench.latency.{name}"), *(f"{value * 1e3:,.1f}" for value in found.values())]
        for name, found in percentiles(times).items()
    ]
    return plain_table([text(lang, "bench.latency.head"), *(f"p{percent}" for percent in _PERCENTS)], rows)
