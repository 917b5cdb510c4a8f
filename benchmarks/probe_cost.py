"""Cost of a probed call, beside a bare call, an append of a tuple, wrapt, VizTracer and the OpenTelemetry SDK.

    python benchmarks/probe_cost.py [--repeats 40] [--calls 2000] [--write]

The candidates take turns, many times over, and are measured in CPU time of this thread, so other programs matter
little. Ratios are to the append of a `(name, start, end)` tuple in the same round, with the garbage collector on and
off. The second part measures later costs: writing a record in the recorded process, and its conversion to a span after
the run. `--write` updates docs/probe-cost.md and its translation. Targets: twice the tuple with arguments and result,
also for coroutines; 0.4 µs to write a call; 6 µs to convert a span.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import gc
import json
import logging
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # also runs as a script

from benchmarks.pages import COST_PAGES, machine, table, write_pages
from benchmarks.probe_cost_candidates import Candidate, Layer, candidates, exporting
from benchmarks.probe_cost_names import COST_HEADS, GROUPS, LANGUAGES, LATER, MADE_BY, NAMES, TUPLE
from tracellm.probes.recording import Recording
from tracellm.probes.wrapping.probe import Probe, code_constants
from tracellm.probes.wrapping.summary import arguments_and_result
from tracellm.probes.wrapping.wrapper import wrap

__all__ = ["cost_tables", "main", "measured"]

Figures = dict[str, Any]
_PACKAGES = ("opentelemetry-sdk", "viztracer", "wrapt")
_COMMAND = "python benchmarks/probe_cost.py --write"


def take_turns(
    group: dict[str, Candidate], records: list[Any], calls: int, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return each candidate's nanoseconds per call and ratios to the tuple measured just before, for each round."""
    times: dict[str, list[float]] = {name: [] for name in group}
    ratios: dict[str, list[float]] = {name: [] for name in group}
    for _ in range(repeats):
        for name, candidate in group.items():
            unit, spent = (_ns_a_call(measured, records, calls) for measured in (group[TUPLE], candidate))
            times[name].append(spent)
            ratios[name].append(spent / unit)
    return times, ratios


def _ns_a_call(candidate: Candidate, records: list[Any], calls: int) -> float:
    records.clear()
    candidate.before()
    start = time.thread_time_ns()
    candidate.loop(calls)
    spent = time.thread_time_ns() - start
    candidate.after()
    return spent / calls


def bytes_held(candidate: Candidate, records: list[Any], calls: int) -> float:
    """Return the bytes that a call keeps in memory until it is written, over many calls: Python reuses small tuples."""
    candidate.before()
    candidate.loop(10)
    records.clear()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    candidate.loop(calls)
    num_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    candidate.after()
    records.clear()
    return num_bytes / calls


def bytes_of_a_span(calls: int) -> float:
    """Return the bytes of an ended span of the SDK that waits for its export."""
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    spans: list[Any] = []

    class Keeping(SpanProcessor):
        def on_end(self, span: Any) -> None:
            spans.append(span)

    provider = TracerProvider()
    provider.add_span_processor(Keeping())
    tracer = provider.get_tracer("benchmark")

    def loop(calls: int) -> None:
        for i in range(calls):
            with tracer.start_as_current_span("work") as span:
                span.set_attribute("x", i)
                span.set_attribute("y", 2)
                span.set_attribute("result", i)

    return bytes_held(Candidate(loop), spans, calls)


def lost_in_a_burst(count: int, file: Path | None) -> int:
    """Return how many of `count` spans in a row the SDK's batch processor drops."""
    provider, num_exported = exporting(file)
    tracer = provider.get_tracer("benchmark")
    for i in range(count):
        with tracer.start_as_current_span("work") as span:
            span.set_attribute("x", i)
    provider.shutdown()
    return count - num_exported[0]


def deferred(calls: int, folder: Path) -> Figures:
    """Return the costs of writing and converting `calls` calls, recorded without pauses; bytes are those on disk."""
    probe = Probe("forward", "layer", "", "self", constants=code_constants(Layer.forward))
    probe.capture, probe.attributes = arguments_and_result(Layer.forward, "self")
    forward, layer = wrap(Layer.forward, probe), Layer()
    with Recording(folder, catalog=()) as recording:
        start = time.perf_counter()
        for i in range(calls):
            forward(layer, i % 7, i % 5)
        seconds = time.perf_counter() - start
    size = sum(file.stat().st_size for file in (folder / "trace").glob("*.jsonl"))
    stats = recording.stats
    writer, spans = stats["writer"], stats["spans"]
    return {
        "spans": spans,
        "us_per_call": writer["us_per_call"],
        "record_bytes": writer["bytes"] / writer["calls"],
        "lost": writer["lost"],
        "us_per_span": stats["conversion"]["us_per_span"],
        "span_bytes": size / spans,
        "calls_seconds": seconds,
    }


def measured(calls: int, repeats: int, later: int, held: int, burst: int) -> Figures:
    """Return all figures."""
    records: list[Any] = []
    rows: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        groups = candidates(records, folder)
        for name, group in groups.items():
            gc.collect()
            gc.enable()
            times, ratios = take_turns(group, records, calls, repeats)
            gc.disable()
            uncollected = take_turns(group, records, calls, repeats)[1]
            gc.enable()
            for candidate_name in group:
                low, middle, high = _quartiles(ratios[candidate_name])
                rows[f"{name}/{candidate_name}"] = {
                    "ns": statistics.median(times[candidate_name]),
                    "ratio": middle,
                    "low": low,
                    "high": high,
                    "uncollected": statistics.median(uncollected[candidate_name]),
                    "bytes": bytes_held(group[candidate_name], records, held) if group[candidate_name].keeps else None,
                }
        span_bytes = bytes_of_a_span(held)
        for candidate_name in ("function/null", "function/file", "coroutine/null"):
            rows[candidate_name]["bytes"] = span_bytes
        lost = {
            "burst": burst,
            "nowhere": lost_in_a_burst(burst, None),
            "file": lost_in_a_burst(burst, folder / "burst.jsonl"),
        }
        return {"rows": rows, "later": deferred(later, folder / "run"), "lost": lost}


def _quartiles(values: Sequence[float]) -> list[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else [*values] * 3


def cost_tables(figures: Figures, lang: str) -> str:
    """Return the tables in Markdown, with the machine below."""
    column = LANGUAGES.index(lang)
    rows = []
    for group, names in NAMES.items():
        rows.append([f"*{GROUPS[group][column]}*", *[""] * (len(COST_HEADS) - 1)])
        rows += [[texts[column], *_row(figures["rows"][f"{group}/{name}"])] for name, texts in names.items()]
    return "\n".join(
        [
            table([texts[column] for texts in COST_HEADS.values()], rows),
            LATER[column].format(**figures["later"], **figures["lost"]),
            MADE_BY[column].format(command=_COMMAND, machine=machine(_PACKAGES)),
        ]
    )


def _row(row: Figures) -> list[str]:
    spread = f"{row['ratio']:.2f} ({row['low']:.2f} – {row['high']:.2f})"
    return [
        f"{row['ns']:,.0f}",
        spread,
        f"{row['uncollected']:.2f}",
        f"{row['bytes']:,.0f}" if row["bytes"] is not None else "",
    ]


def main() -> None:
    """Measure, and print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000, help="calls a round")
    parser.add_argument("--repeats", type=int, default=40, help="rounds")
    parser.add_argument("--later", type=int, default=100_000, help="calls of the recording that is written")
    parser.add_argument("--held", type=int, default=20_000, help="calls whose memory is counted")
    parser.add_argument("--burst", type=int, default=30_000, help="spans in a row for the SDK to export")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the tables into the documentation")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # the SDK warns about each dropped span
    figures = measured(options.calls, options.repeats, options.later, options.held, options.burst)
    print(json.dumps(figures) if options.json else cost_tables(figures, "en"))
    if options.write:
        write_pages(COST_PAGES, "probe-cost", {lang: cost_tables(figures, lang) for lang in LANGUAGES})


if __name__ == "__main__":
    main()
