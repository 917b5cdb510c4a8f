"""Cost of recording: tokens per second with and without `--explain`, in alternating order.

    python benchmarks/overhead.py [--repeats 9] [--only tiny|qwen2|vllm] [--vllm PYTHON] [--write]

Three engines run a batch of 32 requests. The first is tracellm with the bundled model. The second is tracellm with a
Qwen2 of 0.5 billion random weights, made in a temporary folder (1 GB). The third is a real vLLM with the bundled model,
eager, in the environment of scripts/install-vllm.sh. Each variant, bare or recorded with a `--detail`, has its own
process. Its recording starts before the engine is imported, as with `tracellm run`: functions wrapped later stay
slower, since Python has specialized their calls. After warm-up the processes take turns, each round starting with the
next one. The console log goes to nowhere.

The tables show medians, and the quartiles of the slowdown against the bare run of the same round. Targets for
`--explain`: at most 3 %, and 1 % for the large model. The warm-up reaches the depth limit. Run it on an idle machine.
"""

# ruff: noqa: T201  (it prints tables)
import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # also runs as a script

from benchmarks.compared.process import EngineFailed, EngineProcess
from benchmarks.pages import COST_PAGES, machine, table, write_pages
from benchmarks.probe_cost_names import (
    HALF_BILLION,
    LANGUAGES,
    MADE_BY,
    OVERHEAD_BARE,
    OVERHEAD_DEFAULT,
    OVERHEAD_DETAIL,
    OVERHEAD_HEADS,
    OVERHEAD_MODELS,
)
from tracellm.bench.throughput import interleaved
from tracellm.bench.workload import Lengths, Workload, random_workload
from tracellm.trace.names import LEVELS

__all__ = ["RUNS", "Run", "compare", "figures_of", "main", "overhead_table"]

Figures = dict[str, Any]
_ROOT = Path(__file__).parents[1]
_BATCH = 32
_PROMPT = Lengths(3, 3)  # short, so that nearly all work is decoding
_BARE, _DEFAULT = "bare", "default"
_WARM_UPS = 2
_LONGEST = 256


@dataclass(frozen=True)
class Run:
    """An engine with a model, and the levels to record it at."""

    module: str
    """Module of its process in benchmarks/compared."""
    tokens: int
    """Output tokens of each request."""
    details: Sequence[str]
    kv_cache_bytes: int
    model: dict[str, Any] = field(default_factory=dict)
    """Shape of the random weights; empty for the bundled model."""

    @property
    def ways(self) -> list[str]:
        """Names of the variants, the bare one first."""
        return [_BARE, _DEFAULT, *self.details]

    def folder(self, parent: Path) -> Path:
        """Return the checkpoint's folder, made in `parent` if needed."""
        if not self.model:
            return _ROOT / "tracellm" / "tiny"
        from tests.checkpoints import make_checkpoint

        return Path(make_checkpoint(parent / "checkpoint", "qwen2", **self.model))


RUNS = {
    "tiny": Run("tracellm_engine", 96, LEVELS, 64 << 20),
    "qwen2": Run("tracellm_engine", 12, LEVELS, 512 << 20, HALF_BILLION),
    "vllm": Run("vllm_engine", 64, LEVELS, 64 << 20),
}
_NAMES = {_BARE: OVERHEAD_BARE, _DEFAULT: OVERHEAD_DEFAULT}
_PLACES = {"overhead": ("tiny", "qwen2"), "vllm-overhead": ("vllm",)}
"""The variants of each table in the documentation."""


def compare(run: Run, python: str, repeats: int, parent: Path) -> tuple[dict[str, Figures], dict[str, Any]]:
    """Return each variant's speed, its slowdown in per cent against the bare run of its round, and the versions.

    Raises:
        EngineFailed: an engine could not be started; the message has the reason.
    """
    folder = run.folder(parent)
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    workload = random_workload(vocab_size, _BATCH, _PROMPT, Lengths(run.tokens, run.tokens))
    settings = {
        "model": str(folder),
        "dtype": "float32",
        "max_model_len": _LONGEST,
        "max_num_seqs": _BATCH,
        "max_num_batched_tokens": 4096,
        "kv_cache_bytes": run.kv_cache_bytes,
        "text": folder.name == "tiny",
        "eager": True,  # probes are not installed in compiled models
    }
    with ExitStack() as stack:
        engines = {}
        for way in run.ways:
            recorded = {"recorded": None if way == _BARE else way}
            engine = EngineProcess(run.module, python, settings | recorded, _processors(), parent / f"{way}.log")
            engines[way] = stack.enter_context(engine)
        return _turns(engines, workload, repeats), engines[_BARE].about


def _turns(engines: dict[str, EngineProcess], workload: Workload, repeats: int) -> dict[str, Figures]:
    speeds: dict[str, list[float]] = {way: [] for way in engines}
    for way in interleaved(list(engines), _WARM_UPS):
        engines[way].turn(way, workload)
    for way in interleaved(list(engines), repeats):
        seconds = engines[way].turn(way, workload)["seconds"]
        speeds[way].append(workload.num_output_tokens / seconds)
    figures = {}
    for way, engine in engines.items():
        cost = engine.cost() if way != _BARE else {}
        cost["calls"] = round(cost.get("calls", 0) / (repeats + _WARM_UPS))
        figures[way] = figures_of(speeds[way], speeds[_BARE], cost)
    return figures


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def figures_of(speeds: list[float], bare: list[float], stats: Figures) -> Figures:
    """Return the figures of a variant, from its speeds and the `bare` ones of the same rounds, in tokens per second.

    `stats` has the cost that its recording measured.
    """
    slower = [(unit / speed - 1) * 100 for speed, unit in zip(speeds, bare, strict=True)]
    low, middle, high = statistics.quantiles(slower, n=4) if len(slower) > 1 else slower * 3
    writer, conversion = stats.get("writer", {}), stats.get("conversion", {})
    return {
        "speed": statistics.median(speeds),
        "slower": middle,
        "low": low,
        "high": high,
        "calls": stats.get("calls", 0),
        "us_per_call": writer.get("us_per_call"),
        "longest_ms": writer.get("longest_ms"),
        "us_per_span": conversion.get("us_per_span"),
    }


def overhead_table(figures: dict[str, dict[str, Figures]], lang: str, note: str) -> str:
    """Return the table in Markdown, one row for each variant of these `RUNS`, with the `note` below."""
    column = LANGUAGES.index(lang)
    rows = []
    for model, ways in figures.items():
        rows.append([f"*{OVERHEAD_MODELS[model][column]}*", *[""] * (len(OVERHEAD_HEADS) - 1)])
        for way, row in ways.items():
            name = _NAMES[way][column] if way in _NAMES else OVERHEAD_DETAIL[column].format(detail=way)
            recorded = [
                f"{row['slower']:.1f} % ({row['low']:.1f} – {row['high']:.1f})",
                f"{row['calls']:,}",
                *(
                    "" if row[name] is None else f"{row[name]:.2f}"
                    for name in ("us_per_call", "longest_ms", "us_per_span")
                ),
            ]
            rows.append([name, f"{row['speed']:,.1f}", *([""] * len(recorded) if way == _BARE else recorded)])
    return f"{table([texts[column] for texts in OVERHEAD_HEADS], rows)}\n{note}"


def main() -> None:
    """Measure, and print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="number of rounds; at least 5 for --write")
    parser.add_argument("--only", action="append", choices=[*RUNS], help="one of the engines; may be repeated")
    usual = os.environ.get("TRACELLM_VLLM_PYTHON", str(_ROOT / ".venv-vllm" / "bin" / "python"))
    parser.add_argument("--vllm", default=usual, metavar="PYTHON", help="the Python of a real vLLM's environment")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the tables into the documentation")
    options = parser.parse_args()
    chosen = options.only or [*RUNS]
    if "vllm" in chosen and not Path(options.vllm).exists():
        parser.error(f"there is no vLLM at {options.vllm}: scripts/install-vllm.sh makes one; or see --only")
    for page_mark, names in _PLACES.items():
        if not set(names) & set(chosen):
            continue
        if options.write and not set(names) <= set(chosen):
            parser.error(f"the documentation shows {' and '.join(names)} in one table: measure all of it")
        figures: dict[str, dict[str, Figures]] = {}
        about: dict[str, Any] = {}
        for name in (run for run in names if run in chosen):
            python = options.vllm if name == "vllm" else sys.executable
            try:
                with tempfile.TemporaryDirectory() as folder:
                    figures[name], about = compare(RUNS[name], python, options.repeats, Path(folder))
            except EngineFailed as error:
                sys.exit(f"overhead.py: {error}")
        only = "".join(f" --only {name}" for name in names)
        on = ", ".join([machine(), *(f"{name} {about[name]}" for name in ("torch", "vllm") if name in about)])
        command = f"python benchmarks/overhead.py{only} --write"
        notes = (made_by.format(command=command, machine=on) for made_by in MADE_BY)
        tables = {lang: overhead_table(figures, lang, note) for lang, note in zip(LANGUAGES, notes, strict=True)}
        print(json.dumps(figures) if options.json else tables["en"])
        if options.write:
            write_pages(COST_PAGES, page_mark, tables)


if __name__ == "__main__":
    main()
