"""`tracellm bench latency`: one batch of requests, how long until the first token, between tokens, and until the end.

vLLM: vllm/benchmarks/latency.py, which takes the whole only.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict

from tracellm.cli.bench.figures import percentile, plain_table
from tracellm.cli.bench.machine import measure_ceilings
from tracellm.cli.bench.throughput import headlines
from tracellm.cli.bench.trial import Trial
from tracellm.report.texts import Language, text

__all__ = ["PERCENTS", "latency", "latency_table"]

PERCENTS = (50, 90, 99)


def latency(trial: Trial, lang: Language, *, repeats: int, as_json: bool) -> int:
    """Measure, and print. Returns the exit status, 0."""
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
        told = {
            name: {str(percent): percentile(of, percent) for percent in PERCENTS} for name, of in times.items() if of
        }
        print(json.dumps({"ceilings": asdict(ceilings), "seconds": told}, indent=2))
        return 0
    print(headlines(trial, ceilings, lang))
    print(latency_table(times, lang))
    return 0


def latency_table(times: dict[str, Sequence[float]] | dict[str, list[float]], lang: Language) -> str:
    """Milliseconds: a row for each kind of time that was taken, a column for each percentile."""
    rows = [
        [text(lang, f"bench.latency.{name}"), *(f"{percentile(of, percent) * 1e3:,.1f}" for percent in PERCENTS)]
        for name, of in times.items()
        if of
    ]
    return plain_table([text(lang, "bench.latency.head"), *(f"p{percent}" for percent in PERCENTS)], rows)
