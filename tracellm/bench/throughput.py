"""`tracellm bench throughput`: tokens per second of many requests at once, and its share of the machine's limit.

Each round runs the workload with and without a recording, in alternating order. A second run with one output token
for each request is subtracted to get the time of decoding.

vLLM: vllm/benchmarks/throughput.py, which runs its workload once.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from tracellm.bench.figures import Spread, number, plain_table
from tracellm.bench.limits import ideal_seconds
from tracellm.bench.machine import Ceilings, describe, described, measure_ceilings
from tracellm.bench.trial import Depth, Trial, recorded
from tracellm.report.texts import Language, text

__all__ = ["Speed", "headlines", "interleaved", "throughput"]

BARE = "bare"


@dataclass(frozen=True)
class Speed:
    """Speed of one variant, in output tokens."""

    tokens_per_second: Spread
    decode_tokens_per_second: Spread | None
    """Speed without prompts and first tokens; None if no token is left."""
    of_limit: float
    """Ideal time over median time of the whole workload."""
    decode_of_limit: float | None


def throughput(trial: Trial, lang: Language, *, repeats: int, depth: Depth | None, as_json: bool) -> str:
    """Measure, and return the figures as text or JSON."""
    variants: dict[str, Depth | None] = {BARE: None} | ({depth: depth} if depth is not None else {})
    ceilings = measure_ceilings(trial.model.dtype, trial.device)
    seconds: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
    trial.seconds(trial.workload)  # warm up
    for variant in interleaved(list(variants), repeats):
        with recorded(variants[variant]):
            if variants[variant] is not None:
                trial.seconds(trial.workload.first_tokens())  # warm up the probes just installed
            times = trial.seconds(trial.workload), trial.seconds(trial.workload.first_tokens())
        seconds[variant].append(times)
    ceilings = ceilings.merged(measure_ceilings(trial.model.dtype, trial.device))
    speeds = {variant: speed_of(trial, ceilings, times) for variant, times in seconds.items()}
    if as_json:
        return json.dumps(_as_json(trial, ceilings, speeds, seconds), indent=2)
    return f"{headlines(trial, ceilings, lang)}\n{_table(speeds, lang)}"


def interleaved(variants: list[str], repeats: int) -> list[str]:
    """Return the order of the runs: every variant once in each round, each round starting with the next one."""
    return [
        variant
        for turn in range(repeats)
        for variant in (*variants[turn % len(variants) :], *variants[: turn % len(variants)])
    ]


def speed_of(trial: Trial, ceilings: Ceilings, times: list[tuple[float, float]]) -> Speed:
    """Return the speed, from the seconds of each repeat for the whole workload and for its first tokens alone."""
    workload = trial.workload
    ideal, ideal_decode = ideal_seconds(trial.cost(), ceilings, workload, trial.at_once)
    num_decoded = workload.num_output_tokens - len(workload.prompts)
    whole = Spread.of([workload.num_output_tokens / seconds for seconds, _ in times])
    of_limit = ideal * whole.median / workload.num_output_tokens
    decode = [seconds - first for seconds, first in times]
    if num_decoded == 0 or min(decode) <= 0:
        return Speed(whole, None, of_limit, None)
    decoded = Spread.of([num_decoded / seconds for seconds in decode])
    return Speed(whole, decoded, of_limit, ideal_decode * decoded.median / num_decoded)


def headlines(trial: Trial, ceilings: Ceilings, lang: Language) -> str:
    """Return the lines above the figures: machine, model and requests."""
    choice, cost = trial.config.ops_choice, trial.cost()
    lines = text(
        lang,
        "bench.headlines",
        model=trial.model.served_model_name,
        weights=number(cost.weight_bytes / 1e6),
        ops=choice.name,
        reason=text(lang, f"ops.reason.{choice.reason}"),
        requests=len(trial.workload.prompts),
        at_once=trial.at_once,
        inputs=trial.workload.num_input_tokens,
        outputs=trial.workload.num_output_tokens,
    )
    return f"{described(ceilings, lang)}\n{lines}"


def _table(speeds: dict[str, Speed], lang: Language) -> str:
    rows = []
    for variant, speed in speeds.items():
        decode = speed.decode_tokens_per_second
        rows.append(
            [
                text(lang, f"bench.{variant}")
                if variant in (BARE, "default")
                else text(lang, "bench.recorded", detail=variant),
                str(speed.tokens_per_second),
                f"{speed.of_limit:.1%}",
                "-" if decode is None else str(decode),
                "-" if speed.decode_of_limit is None else f"{speed.decode_of_limit:.1%}",
            ]
        )
    return plain_table(text(lang, "bench.throughput.heads").split("|"), rows)


def _as_json(
    trial: Trial, ceilings: Ceilings, speeds: dict[str, Speed], seconds: dict[str, list[tuple[float, float]]]
) -> dict[str, Any]:
    return {
        "machine": describe(),
        "ceilings": asdict(ceilings),
        "model": trial.model.served_model_name,
        "dtype": str(trial.model.dtype).removeprefix("torch."),
        "ops": asdict(trial.config.ops_choice),
        "requests": len(trial.workload.prompts),
        "input_tokens": trial.workload.num_input_tokens,
        "output_tokens": trial.workload.num_output_tokens,
        "ways": {
            variant: asdict(speed) | {"seconds": [whole for whole, _ in seconds[variant]]}
            for variant, speed in speeds.items()
        },
    }
