"""How much slower an explained run of a real vLLM is: tokens per second with `--explain` and without, taking turns.

    python benchmarks/vllm_overhead.py [--python .venv-vllm/bin/python] [--repeats 15] [--write]

The embedded model in a vLLM, eager, in one process, with a batch of 32 requests: bare, and recorded with each
`--detail`. Each way has a process of its own, in which the recording begins before vLLM is imported, as `tracellm run`
has it: functions that are wrapped later are slower for long, as Python has to learn anew where they lead. When all
engines are warm they take turns, beginning with another each round, and those whose turn it is not wait. The table is
as that of benchmarks/overhead.py, of which this is the twin. The aim: at most 3 %. Nothing else should run on the
machine.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it can also be run as a script

from benchmarks.pages import COST_PAGES, machine, write_pages
from benchmarks.probe_cost_names import LANGUAGES, MADE_BY, OVERHEAD_VLLM
from tracellm.trace.names import LEVELS

__all__ = ["main", "rounds"]

_ROOT = Path(__file__).parents[1]
_BATCH = 32
_BARE = "bare"
_COMMAND = "python benchmarks/vllm_overhead.py --write"
_WARM_UPS = 3
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(_ROOT),
}

# -- the process that has the engine ----------------------------------------------------------------------------------


def work(way: str, tokens: int) -> None:
    """In vLLM's Python: say what this is, then generate for each line that is read, and say how fast; last, at what
    cost."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer

    def answer(what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    with tempfile.TemporaryDirectory() as folder, _recorded(way, Path(folder)) as recording:
        generate = _engine(tokens)
        for _ in range(_WARM_UPS):
            generate()
        answer(machine(["vllm", "torch"]))
        for _ in sys.stdin:
            answer(generate())
    answer(recording.stats if recording is not None else {})


def _recorded(way: str, folder: Path) -> Any:
    if way == _BARE:
        return nullcontext()
    from tracellm.probes.selection import Selection
    from tracellm.probes.session import Recording
    from tracellm.report.console import Console

    [level] = [one for one in LEVELS if one == way]
    return Recording(folder / "run", selection=Selection(level), listener=Console("en", io.StringIO()))


def _engine(tokens: int) -> Callable[[], float]:
    """Makes the engine. Each call generates, mostly decoding, as prompts are short, and returns tokens per second."""
    from vllm import LLM, SamplingParams

    tiny = str(_ROOT / "tracellm" / "tiny")
    options = {"max_num_seqs": _BATCH, "max_model_len": 256, "enable_prefix_caching": False, "enforce_eager": True}
    llm = LLM(model=tiny, dtype="float32", **options)
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    prompts = [f"{i}:" for i in range(_BATCH)]

    def generate() -> float:
        start = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds

    return generate


# -- the process that asks ---------------------------------------------------------------------------------------------


class Engine:
    """A process in which vLLM generates in one way, when it is asked to."""

    def __init__(self, python: str, way: str, tokens: int) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--work", way, "--tokens", str(tokens)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        self.way = way

    def __enter__(self) -> Self:
        """As a context it is ended afterwards, whatever happens."""
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def answer(self) -> Any:
        """What it says next.

        Raises:
            RuntimeError: it ended.
        """
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the process that generates with {self.way} ended: is there a vLLM, and room for it?")
        return json.loads(line)

    def generate(self) -> float:
        """Tokens per second of one batch."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self.answer())

    def end(self) -> Any:
        """Ends it; what the recording says that it cost."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.answer()


def rounds(engines: Mapping[str, Engine], repeats: int) -> dict[str, list[float]]:
    """Tokens per second of each way in each round."""
    ways = list(engines)
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(repeats):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            speeds[way].append(engines[way].generate())
    return speeds


def compare(python: str, repeats: int, tokens: int) -> tuple[dict[str, Any], str]:
    """The figures of each way, as benchmarks/overhead.py has them, and what they were measured on."""
    from benchmarks.overhead import figures_of

    ways = (_BARE, *LEVELS)
    with ExitStack() as stack:
        engines = {way: stack.enter_context(Engine(python, way, tokens)) for way in ways}
        [on] = {engine.answer() for engine in engines.values()}
        speeds = rounds(engines, repeats)
        stats = {way: engine.end() for way, engine in engines.items()}
    for one in stats.values():
        one["calls"] = round(one.get("calls", 0) / (repeats + _WARM_UPS))
    return {way: figures_of(speeds[way], speeds[_BARE], stats[way]) for way in ways}, on


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = os.environ.get("TRACELLM_VLLM_PYTHON", str(_ROOT / ".venv-vllm" / "bin" / "python"))
    parser.add_argument("--python", default=usual, help="of the environment that has vLLM")
    parser.add_argument("--repeats", type=int, default=15, help="rounds; at least 5 for figures to be told")
    parser.add_argument("--tokens", type=int, default=64, help="tokens for each request")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    parser.add_argument("--work", metavar="WAY", choices=[_BARE, *LEVELS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.tokens)
        return
    from benchmarks.overhead import overhead_table

    figures, on = compare(options.python, options.repeats, options.tokens)
    notes = [MADE_BY[column].format(command=_COMMAND, machine=on) for column in range(len(LANGUAGES))]
    made = {
        lang: overhead_table({"vllm": figures}, lang, {"vllm": OVERHEAD_VLLM}, note)
        for lang, note in zip(LANGUAGES, notes, strict=True)
    }
    print(made["en"])
    if options.write:
        write_pages(COST_PAGES, "vllm-overhead", made)


if __name__ == "__main__":
    main()
