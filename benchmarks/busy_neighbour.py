"""Slowdown of the engine while other programs keep processors busy, by the way in which OpenMP waits.

    python benchmarks/busy_neighbour.py [--neighbours 0 1 2] [--repeats 7] [--ways default first ...] [--model FOLDER]

Each variant has its own process with the bundled model. It decodes eight requests of 64 tokens beside the given number
of processes in endless loops. The variants take turns, each round starting with the next one, after a warm-up round.
The table has medians and quartiles in milliseconds per step, and their ratios to no neighbours and to `default` with as
many neighbours. The last column is the share of CPU time that went to all other processes, the loops included.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # also runs as a script

from benchmarks.compared.busy import Busy
from benchmarks.pages import machine, table
from tracellm.bench.figures import Spread, number

__all__ = ["HEADS", "WAYS", "busy_loops", "main", "measure", "neighbour_table"]

Times = dict[tuple[str, int], list[tuple[float, float]]]
_ROOT = Path(__file__).parents[1]
_OPENMP = ("OMP_", "GOMP_", "KMP_")
_SPINS = "GOMP_SPINCOUNT"
WAYS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "default": ("", {}),
    "first": ("import torch\n", {}),
    "openmp": ("", {_SPINS: "300000"}),
    "passive": ("", {"OMP_WAIT_POLICY": "passive"}),
    "one": ("", {"OMP_NUM_THREADS": "1"}),
}
"""First lines and environment variables of the script: as usual; with torch imported before; with OpenMP's usual
spinning; without spinning; with one thread.
"""
HEADS = ("way", "neighbours", "ms a step (quartiles)", "times without", "times `default`", "other programs")
_SCRIPT = """
import sys, time
from tracellm import LLM, SamplingParams
engine = LLM(sys.argv[1]).llm_engine if sys.argv[1] else LLM().llm_engine
params = SamplingParams(temperature=0, max_tokens=int(sys.argv[2]), ignore_eos=True)
print(flush=True)
for round, _ in enumerate(sys.stdin):
    for number in range(8):
        engine.add_request(f"{round}.{number}", f"Tell me about the city number {number}", params)
    before, used, steps = time.perf_counter(), time.process_time(), 0
    while engine.has_unfinished_requests():
        engine.step()
        steps += 1
    print((time.perf_counter() - before) / steps * 1e3, time.process_time() - used, flush=True)
"""


def measure(ways: Sequence[str], neighbours: Sequence[int], repeats: int, model: str = "", tokens: int = 64) -> Times:
    """Return milliseconds per step, and the share of CPU time of other programs, for each variant and round."""
    times: Times = {(way, beside): [] for way in ways for beside in neighbours}
    with ExitStack() as stack:
        processes = {way: stack.enter_context(_engine(way, model, tokens)) for way in ways}
        for number_of_round in range(1 + repeats):
            first = number_of_round % len(ways)
            for beside in neighbours:
                with busy_loops(beside):
                    for way in [*ways[first:], *ways[:first]]:
                        busy = Busy()
                        step, used = map(float, _ask(processes[way]).split())
                        if number_of_round:
                            times[way, beside].append((step, busy.elsewhere(used)))
    return times


@contextmanager
def _engine(way: str, model: str, tokens: int) -> Iterator["subprocess.Popen[str]"]:
    """Context with a process that decodes the batch for each line of its stdin."""
    begin, variables = WAYS[way]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OPENMP)}
    command = [sys.executable, "-c", begin + _SCRIPT, model, str(tokens)]
    with subprocess.Popen(
        command, cwd=_ROOT, env={**inherited, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(f"the way {way} ended, with status {process.wait()}")
        yield process
        process.communicate()


def _ask(process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    return process.stdout.readline()


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Context with `count` processes in endless loops."""
    looping = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in looping:
            process.kill()
            process.wait()


def neighbour_table(times: Times) -> str:
    """Return the table in Markdown."""
    rows = []
    medians = {key: statistics.median(step for step, _ in values) for key, values in times.items()}
    fewest = min(beside for _, beside in times)
    for (way, beside), values in times.items():
        default = medians.get(("default", beside))
        compared: dict[str, Any] = {
            "without": medians[way, beside] / medians[way, fewest],
            "default": medians[way, beside] / default if default else None,
        }
        ratios = [number(value) if value is not None else "" for value in compared.values()]
        other_share = statistics.median(share for _, share in values)
        steps = Spread.of([step for step, _ in values])
        rows.append([f"`{way}`", str(beside), str(steps), *ratios, f"{other_share:.0%}"])
    return table(HEADS, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--repeats", type=int, default=7, metavar="N")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--model", default="", metavar="FOLDER", help="model to use instead of the bundled one")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of each request")
    options = parser.parse_args(arguments)
    print(neighbour_table(measure(options.ways, options.neighbours, options.repeats, options.model, options.tokens)))
    print(f"{machine(['torch'])}, {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
