"""Latency and throughput of servers by the number of concurrent requests, measured by `vllm bench serve`.

    python benchmarks/serving.py [--concurrency 1 4 16 64] [--rates 2 8] [--servers tracellm explained vllm]
                                 [--neighbours 0 1] [--requests N] [--input-len 32] [--output-len 32] [--repeats 5]
                                 [--vllm PYTHON] [--json]

Servers: `tracellm serve`, the same under `--explain`, and `vllm serve`, all with the bundled model in float32 and their
own default settings. All run at the same time, and are measured in turns, each when all others rest; each round begins
with the next one, after a warm-up round. All get the same requests in a round, and others in the next. A rate is in
requests a second, with random arrivals. Neighbours are processes in endless loops.

The table has medians over the rounds: of output tokens a second; of the 50th and 99th percentile of the time to the
first token, of the time between two tokens, and of the whole request, in milliseconds; and of the CPU time for each
output token in microseconds, of the server's first process, which is the front end, and of all others. Ratios are to
vLLM, of the same round: of throughput above 1, of times below 1 are better than vLLM's.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # also runs as a script

from benchmarks.busy_neighbour import busy_loops
from benchmarks.pages import machine, table
from scripts.vllm_server import Server, free_port, serving
from tests.faults.processes import cpu_of, session_of
from tracellm.bench.figures import number

__all__ = ["FIGURES", "Load", "main", "rows", "turns"]

_ROOT = Path(__file__).parents[1]
_MODEL = _ROOT / "tracellm" / "tiny"
_CLIENT = Path(__file__).parent / "compared" / "vllm_bench.py"
_GUARD = 600.0
"""Seconds after which a client or server counts as hung."""

FIGURES = {
    "output_throughput": "tokens/s",
    "p50_ttft_ms": "TTFT p50",
    "p99_ttft_ms": "TTFT p99",
    "p50_itl_ms": "ITL p50",
    "p99_itl_ms": "ITL p99",
    "p50_e2el_ms": "E2E p50",
    "p99_e2el_ms": "E2E p99",
    "front_end_us": "front end CPU",
    "engine_us": "engine CPU",
}
"""Figures of a result, by vLLM's names where they are of `vllm bench serve`, with the heads of their columns."""


@dataclass(frozen=True)
class Load:
    """A load: a number of concurrent requests, or a rate of arrivals, and the number of busy neighbours."""

    concurrency: int | None
    rate: float | None
    neighbours: int

    def __str__(self) -> str:
        load = f"{self.concurrency} concurrent" if self.rate is None else f"{number(self.rate)} a second"
        return f"{load}, neighbours: {self.neighbours}" if self.neighbours else load

    @property
    def requests(self) -> int:
        """Default number of requests of a measurement."""
        return max(64, 4 * (self.concurrency or 0))

    @property
    def options(self) -> list[str]:
        """Options of `vllm bench serve`."""
        if self.rate is None:
            return ["--request-rate=inf", f"--max-concurrency={self.concurrency}"]
        return [f"--request-rate={self.rate}"]


def turns(servers: Sequence[str], repeats: int) -> Iterator[list[str]]:
    """Yield the order of the servers in each round, each time beginning with the next one."""
    for round_ in range(repeats):
        first = round_ % len(servers)
        yield [*servers[first:], *servers[:first]]


def rows(load: Load, results: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    """Return a row for each server under one load; ratios are medians of those of each round."""
    made = []
    for server, own in results.items():
        cells = []
        for name in FIGURES:
            cell = number(statistics.median(result[name] for result in own))
            if server != "vllm" and "vllm" in results:
                pairs = zip(own, results["vllm"], strict=True)
                ratios = [one[name] / other[name] for one, other in pairs if other[name]]
                cell += f" ({statistics.median(ratios):.2f}×)" if ratios else ""
            cells.append(cell)
        made.append([str(load), server, *cells])
    return made


class _Client:
    """The process that sends the requests."""

    def __init__(self, python: str, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._log = folder / "client.log"
        self._options = options
        self._count = 0
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, _CLIENT],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                cwd=folder,
                env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
            )

    def measure(self, server: Server, load: Load, seed: int) -> dict[str, float]:
        """Send the requests of a load to a server, and return the figures; `seed` draws prompts and arrivals.

        Raises:
            SystemExit: the client ended, or a request failed.
        """
        self._count += 1
        requests = self._options.requests or load.requests
        path = self._folder / f"{self._count}.json"
        options = self._options
        asked = [
            *(
                "--backend=openai",
                "--endpoint=/v1/completions",
                f"--base-url={server.url}",
                "--model=tiny",
                "--ignore-eos",
            ),
            *(f"--tokenizer={_MODEL}", "--dataset-name=random", f"--random-input-len={options.input_len}"),
            *(f"--random-output-len={options.output_len}", f"--num-prompts={requests}", "--disable-tqdm"),
            *("--percentile-metrics=ttft,itl,e2el", "--metric-percentiles=50,99", f"--seed={seed}"),
            *load.options,
        ]
        before = _cpu(server)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([asked, str(path)]) + "\n")
        self._process.stdin.flush()
        deadline = time.monotonic() + _GUARD
        while not path.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"vllm bench serve failed:\n{self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)
        result = json.loads(path.read_text(encoding="utf-8"))
        if failed := requests - result["completed"]:
            *_, why = self._log.read_text(errors="replace").rpartition("Failed requests during benchmark run")
            raise SystemExit(f"{failed} of {requests} requests failed at {server.url}:\n{why[:3000]}")
        spent = (
            1e6 * (after - first) / result["total_output_tokens"]
            for first, after in zip(before, _cpu(server), strict=True)
        )
        result["front_end_us"], result["engine_us"] = spent
        return {name: float(result[name]) for name in FIGURES}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _cpu(server: Server) -> tuple[float, float]:
    """Return the CPU time of the front end and of the other processes of a server, in seconds."""
    front = server.process.pid
    return cpu_of(front), sum(cpu_of(pid) for pid in session_of(front) if pid != front)


def _wait_for_rest(servers: Sequence[Server]) -> None:
    """Wait until no server computes: the threads of one may wait in loops for a second after its last request.

    Raises:
        SystemExit: they still compute after _GUARD seconds.
    """
    deadline = time.monotonic() + _GUARD
    before, resting = 0.0, 0
    while resting < 3:
        if time.monotonic() > deadline:
            raise SystemExit("A server still computes, though it has no requests.")
        time.sleep(0.2)
        spent = sum(sum(_cpu(server)) for server in servers)
        resting = resting + 1 if spent - before < 0.02 else 0
        before = spent


@contextmanager
def _server(name: str, vllm: str, folder: Path) -> Iterator[Server]:
    """Context with a server."""
    port = free_port()
    folder.mkdir()
    common = ["--port", str(port), "--dtype", "float32", "--served-model-name", "tiny"]
    # The client fails now and then where a server closes an idle connection.
    environment: dict[str, str] = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
    if name == "vllm":
        program = Path(vllm).with_name("vllm")
        command: list[str | Path] = [program, "serve", _MODEL, *common, "--host", "127.0.0.1"]
        environment |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    else:
        explain = ["--explain"] if name == "explained" else []
        command = [sys.executable, "-m", "tracellm", "serve", _MODEL, *common, *explain]
        environment |= {"PYTHONPATH": str(_ROOT), "TRACELLM_CPU_KVCACHE_SPACE": "1"}
    with serving(command, port, folder / "log", cwd=folder, env=environment) as server:
        yield server


def main() -> None:
    """Measure, and print the table."""
    options = _options()
    loads = [Load(count, None, busy) for busy in options.neighbours for count in options.concurrency]
    loads += [Load(None, rate, busy) for busy in options.neighbours for rate in options.rates]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        folder = Path(directory)
        servers = {name: stack.enter_context(_server(name, options.vllm, folder / name)) for name in options.servers}
        client = _Client(options.vllm, folder, options)
        stack.callback(client.close)
        seeds = itertools.count()
        first = next(seeds)
        for server in servers.values():
            client.measure(server, Load(max(options.concurrency, default=8), None, 0), first)
        made: list[list[str]] = []
        for load in loads:
            results: dict[str, list[dict[str, float]]] = {name: [] for name in options.servers}
            with busy_loops(load.neighbours):
                for order, seed in zip(turns(options.servers, options.repeats), seeds, strict=False):
                    for each in order:
                        _wait_for_rest(list(servers.values()))
                        results[each].append(client.measure(servers[each], load, seed))
            if options.json:
                print(json.dumps({"load": str(load), "results": results}), flush=True)
            made += rows(load, results)
            print(f"measured: {load}", file=sys.stderr, flush=True)
    if not options.json:
        print(machine(["torch"]), "\n")
        print(table(["load", "server", *FIGURES.values()], made))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", choices=["tracellm", "explained", "vllm"])
    parser.add_argument("--concurrency", nargs="*", type=int, default=[1, 4, 16, 64], help="concurrent requests")
    parser.add_argument("--rates", nargs="*", type=float, default=[], help="requests a second")
    parser.add_argument("--neighbours", nargs="+", type=int, default=[0], help="processes in endless loops")
    parser.add_argument("--requests", type=int, help="requests of each measurement: 4 x concurrent, at least 64")
    parser.add_argument("--input-len", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--output-len", type=int, default=32, help="tokens to generate for each")
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    usual = os.environ.get("TRACELLM_VLLM_PYTHON", str(_ROOT / ".venv-vllm" / "bin" / "python"))
    parser.add_argument("--vllm", default=usual, metavar="PYTHON", help="the Python of a real vLLM's environment")
    parser.add_argument("--json", action="store_true", help="print the figures of each round as JSON")
    options = parser.parse_args()
    options.servers = options.servers or ["tracellm", "explained", "vllm"]
    if not Path(options.vllm).exists():
        parser.error(f"there is no vLLM, whose client sends the requests, at {options.vllm}: scripts/install-vllm.sh")
    return options


if __name__ == "__main__":
    main()
