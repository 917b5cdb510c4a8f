"""How much slower an explained run is: tokens per second with `--explain` and without, taking turns.

    python benchmarks/overhead.py [--repeats 7] [--only tiny|qwen2] [--write]

Two models with a batch of 32 requests: the embedded one, with each `--detail`; and a Qwen2 of half a billion parameters
with random weights, made in a temporary folder (2 GB), at the default detail. Every round generates once bare and once
recorded in each way, beginning with another each time; the probes are installed, and the engine is warm, before the
clock starts. The live log is printed as `tracellm run` does, to nowhere. Told are medians, and the quartiles of what is
slower than the bare run of the same round. The aims: at most 3 % and 1 %. Nothing else should run on the machine.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it can also be run as a script

from benchmarks.pages import COST_PAGES, machine, table, write_pages
from benchmarks.probe_cost_names import (
    HALF_BILLION,
    LANGUAGES,
    MADE_BY,
    OVERHEAD_BARE,
    OVERHEAD_DETAIL,
    OVERHEAD_HEADS,
    OVERHEAD_MODELS,
)
from tracellm import LLM, SamplingParams
from tracellm.probes.selection import Selection
from tracellm.probes.session import Recording
from tracellm.report.console import Console
from tracellm.trace.names import LEVELS, Level

__all__ = ["compare", "figures_of", "main", "overhead_table"]

Figures = dict[str, Any]
_BATCH = 32
_BARE = "bare"
_COMMAND = "python benchmarks/overhead.py --write"


def half_a_billion(folder: Path) -> str:
    """A checkpoint in the shape of Qwen2-0.5B, with random weights."""
    from tests.checkpoints import make_checkpoint

    return str(make_checkpoint(folder / "qwen2", "qwen2", **HALF_BILLION))


class Rounds:
    """Generations of one engine, bare or recorded."""

    def __init__(self, model: str | None, tokens: int, folder: Path) -> None:
        options: dict[str, Any] = {"max_num_seqs": _BATCH, "enable_prefix_caching": False, "max_model_len": 256}
        self._llm = LLM(**options) if model is None else LLM(model, dtype="float32", **options)
        self._tokens = tokens
        self._folder = folder
        self._count = 0

    def generate(self, tokens: int, batch: int = _BATCH) -> float:
        """Tokens per second; prompts are short, so that nearly all of it is decoding."""
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        prompts = [f"{i}:" for i in range(batch)]
        start = time.perf_counter()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds

    def take(self, way: str) -> tuple[float, Figures]:
        """Tokens per second in this way, and what the recording says that it cost."""
        with self._recorded(way) as recording:
            self.generate(3, batch=2)  # the probes have just been put on: Python learns the calls anew
            speed = self.generate(self._tokens)
        return speed, recording.stats if recording is not None else {}

    @contextmanager
    def _recorded(self, way: str) -> Iterator[Recording | None]:
        level: Level | None = next((one for one in LEVELS if one == way), None)
        self._count += 1
        folder = self._folder / str(self._count)
        recording = None
        if level is not None:
            recording = Recording(folder, selection=Selection(level), listener=Console("en", io.StringIO()))
        with recording or nullcontext():
            yield recording


def compare(rounds: Rounds, details: Sequence[str], repeats: int) -> dict[str, Figures]:
    """Each way's speed, and by how many percent it is slower than the bare run of its round: median and quartiles."""
    ways = [_BARE, *details]
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    stats: dict[str, Figures] = {}
    rounds.generate(2)
    for number in range(repeats):
        for way in (*ways[number % len(ways) :], *ways[: number % len(ways)]):
            speed, stats[way] = rounds.take(way)
            speeds[way].append(speed)
    return {way: figures_of(speeds[way], speeds[_BARE], stats[way]) for way in ways}


def figures_of(speeds: list[float], bare: list[float], stats: Figures) -> Figures:
    """What is told of a way with these speeds, in tokens per second, beside the `bare` ones of the same rounds.

    `stats` is what its recording says that it cost.
    """
    slower = [(unit / speed - 1) * 100 for speed, unit in zip(speeds, bare, strict=True)]
    low, middle, high = statistics.quantiles(slower, n=4) if len(slower) > 1 else slower * 3
    writer = stats.get("writer", {})
    return {
        "speed": statistics.median(speeds),
        "slower": middle,
        "low": low,
        "high": high,
        "calls": stats.get("calls", 0),
        "us_within": writer["seconds_within"] / writer["spans"] * 1e6 if writer.get("spans") else None,
        "us_per_span": writer.get("us_per_span"),
        "worst_pause_ms": writer.get("worst_pause_ms"),
    }


def overhead_table(
    figures: dict[str, dict[str, Figures]],
    lang: str,
    models: Mapping[str, tuple[str, str]] = OVERHEAD_MODELS,
    note: str | None = None,
) -> str:
    """The table in Markdown: of each model, named as in `models`, each way; below it, what was measured on."""
    column = LANGUAGES.index(lang)
    rows = []
    for model, ways in figures.items():
        rows.append([f"*{models[model][column]}*", *[""] * (len(OVERHEAD_HEADS) - 1)])
        for way, row in ways.items():
            name = OVERHEAD_BARE[column] if way == _BARE else OVERHEAD_DETAIL[column].format(detail=way)
            recorded = [
                f"{row['slower']:.1f} % ({row['low']:.1f} – {row['high']:.1f})",
                f"{row['calls']:,}",
                f"{row['us_within']:.2f}" if row["us_within"] is not None else "",
                f"{row['us_per_span']:.2f}" if row["us_per_span"] is not None else "",
                f"{row['worst_pause_ms']:.1f}" if row["worst_pause_ms"] is not None else "",
            ]
            rows.append([name, f"{row['speed']:,.1f}", *([""] * len(recorded) if way == _BARE else recorded)])
    note = note or MADE_BY[column].format(command=_COMMAND, machine=machine(["torch"]))
    return f"{table([texts[column] for texts in OVERHEAD_HEADS], rows)}\n{note}"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="rounds; at least 5 for figures to be told")
    parser.add_argument("--tokens", type=int, default=96, help="tokens for each request of the embedded model")
    parser.add_argument("--tokens-qwen2", type=int, default=12, help="the same for the large one")
    parser.add_argument("--only", choices=[*OVERHEAD_MODELS], help="one model")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("the documentation wants both models: leave out --only")
    figures = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if options.only != "qwen2":
            figures["tiny"] = compare(Rounds(None, options.tokens, folder / "tiny"), LEVELS, options.repeats)
        if options.only != "tiny":
            rounds = Rounds(half_a_billion(folder), options.tokens_qwen2, folder / "runs")
            figures["qwen2"] = compare(rounds, LEVELS[-1:], options.repeats)
    print(json.dumps(figures) if options.json else overhead_table(figures, "en"))
    if options.write:
        write_pages(COST_PAGES, "overhead", {lang: overhead_table(figures, lang) for lang in LANGUAGES})


if __name__ == "__main__":
    main()
