"""Time to a script's first token: from the start of Python, imports included, to the end of `generate`.

    python benchmarks/startup.py [--repeats 9] [--ways torch tracellm ...] [--vllm PYTHON] [--write]

A new Python runs a script that makes an `LLM()` and generates one token. For comparison run a script that only imports
torch, the lower bound for any engine on it, and `tracellm --help`, which needs no torch. They take turns, each round
starting with the next one, after a warm-up round that fills caches and compiles kernels. A real vLLM runs the same
model if the Python of its environment is given, eager and in one process, its fastest start. The table shows medians
and quartiles of wall-clock time, and the CPU time of the process and its children until they end. Run it on an idle
machine.
"""

# ruff: noqa: T201  (it prints tables)
import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # also runs as a script

from benchmarks.compared.busy import Busy
from benchmarks.compared.process import environment
from benchmarks.pages import table, write_pages
from tracellm.bench.figures import Spread, number
from tracellm.bench.machine import describe

__all__ = ["HEADS", "NOT_MEASURED", "PAGES", "TITLES", "WAYS", "Start", "main", "measure", "startup_table"]

Figures = dict[str, Any]
_ROOT = Path(__file__).parents[1]
PAGES = {"en": _ROOT / "docs" / "performance.md", "zh": _ROOT / "docs" / "zh" / "performance.md"}
_LANGUAGES = ("en", "zh")
_FLOOR = "torch"
_PROMPT = "The capital of France is"
_NOW = "import time; print(time.monotonic(), flush=True)"  # one clock for all processes
_GENERATE = f"""
params = SamplingParams(temperature=0, max_tokens=1)
(output,) = llm.generate({_PROMPT!r}, params, use_tqdm=False)
assert len(output.outputs[0].token_ids) == 1
{_NOW}
"""
_OURS = f"from tracellm import LLM, SamplingParams\nllm = LLM()\n{_GENERATE}"
_VLLM = f"""
from vllm import LLM, SamplingParams
llm = LLM({str(_ROOT / "tracellm" / "tiny")!r}, enforce_eager=True, kv_cache_memory_bytes=1 << 30)
{_GENERATE}"""


@dataclass(frozen=True)
class Start:
    """A program to start."""

    arguments: Sequence[str]
    """Arguments of Python."""
    variables: Mapping[str, str]
    """Environment variables."""


WAYS = {
    "help": Start(["-m", "tracellm", "--help"], {}),
    _FLOOR: Start(["-c", f"import torch\n{_NOW}"], {}),
    "tracellm": Start(["-c", _OURS], {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}),
    "tracellm-process": Start(["-c", _OURS], {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}),
    "vllm": Start(["-c", _VLLM], {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}),
}
TITLES = {
    "help": ("`tracellm --help`", "`tracellm --help`"),
    _FLOOR: ("`import torch` alone", "只 `import torch`"),
    "tracellm": ("**`LLM()`, first token**", "**`LLM()`，第一个 token**"),
    "tracellm-process": (
        "`LLM()` with an engine core in a process of its own, first token",
        "`LLM()`，引擎核心在单独的进程里，第一个 token",
    ),
    "vllm": ("vLLM, the same model, first token", "vLLM，同一个模型，第一个 token"),
}
HEADS = (
    ("from the start of Python to", "从 Python 启动到"),
    ("seconds (quartiles)", "秒（四分位）"),
    ("times `import torch`", "是 `import torch` 的几倍"),
    ("CPU seconds of all processes", "所有进程的 CPU 秒"),
)
NOT_MEASURED = {"en": "*Not measured yet.*\n", "zh": "*尚未测量。*\n"}
_NOTES = (
    """
The bundled model, warm, {threads} threads, {repeats} rounds. Other programs had {busy:.0%} of the processors' time.
Made by `{command}` on {machine}.
""",
    """
内置模型，已预热，{threads} 个线程，{repeats} 轮。处理器时间有 {busy:.0%} 被别的程序占用。
由 `{command}` 生成：{machine}。
""",
)


def measure(
    ways: Sequence[str], pythons: Mapping[str, str], threads: int, repeats: int, warm_up: bool = True
) -> Figures:
    """Start each variant `repeats` times, in turns.

    Args:
        ways: some of `WAYS`.
        pythons: Python interpreter of each variant.
        threads: value of OMP_NUM_THREADS.
        repeats: number of rounds.
        warm_up: run one more round first, which does not count.

    Raises:
        subprocess.CalledProcessError: a program failed; its stderr has the reason.
    """
    all_times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for way in ways if warm_up else ():
        _start(way, pythons[way], threads)
    busy = Busy()
    for number_of_round in range(repeats):
        first = number_of_round % len(ways)
        for way in [*ways[first:], *ways[:first]]:
            all_times[way].append(_start(way, pythons[way], threads))
    return {
        "ways": {
            way: {
                "seconds": asdict(Spread.of([seconds for seconds, _ in times])),
                "cpu_seconds": asdict(Spread.of([cpu for _, cpu in times])),
            }
            for way, times in all_times.items()
        },
        "threads": threads,
        "repeats": repeats,
        "busy_elsewhere": busy.elsewhere(sum(cpu for times in all_times.values() for _, cpu in times)),
    }


def _start(way: str, python: str, threads: int) -> tuple[float, float]:
    """Return the seconds until the token, or until the end if none is printed, and the CPU seconds until the end."""
    start = WAYS[way]
    variables = {**environment(Path(python), threads), **start.variables}
    begun = time.monotonic()
    process = subprocess.Popen([python, *start.arguments], stdout=subprocess.PIPE, text=True, env=variables, cwd=_ROOT)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    ended = time.monotonic()
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, f"{python}, the way {way}")
    token_time = ended if way == "help" else float(output.splitlines()[-1])
    return token_time - begun, used.ru_utime + used.ru_stime


def startup_table(figures: Figures, lang: str, command: str, machine: str) -> str:
    """Return the table in Markdown, with the machine below."""
    column, ways = _LANGUAGES.index(lang), figures["ways"]
    floor = ways.get(_FLOOR)
    rows = []
    for way, titles in TITLES.items():
        if way in ways:
            seconds = Spread(**ways[way]["seconds"])
            times = number(seconds.median / floor["seconds"]["median"]) if floor else ""
            rows.append([titles[column], str(seconds), times, number(ways[way]["cpu_seconds"]["median"])])
    note = _NOTES[column].format(
        threads=figures["threads"],
        repeats=figures["repeats"],
        busy=figures["busy_elsewhere"],
        command=command,
        machine=machine,
    )
    return f"{table([texts[column] for texts in HEADS], rows)}{note}"


def main() -> None:
    """Measure, and print or write the table."""
    options = _options()
    pythons = dict.fromkeys(WAYS, sys.executable) | {"vllm": str(options.vllm)}
    try:
        figures = measure(options.ways, pythons, options.threads, options.repeats, not options.cold)
    except subprocess.CalledProcessError as error:
        sys.exit(f"startup.py: {error}")
    command = "python benchmarks/startup.py" + (" --vllm PYTHON" if options.vllm else "") + " --write"
    tables = {lang: startup_table(figures, lang, command, describe(options.threads)) for lang in PAGES}
    print(json.dumps(figures) if options.json else tables["en"])
    if options.write:
        write_pages(PAGES, "startup", tables)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [way for way in WAYS if way != "vllm"]
    parser.add_argument("--ways", nargs="+", choices=usual, default=usual, help="some of what is started")
    parser.add_argument("--vllm", metavar="PYTHON", type=Path, help="the Python of a real vLLM's environment")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each engine")
    parser.add_argument("--repeats", type=int, default=9, help="rounds; at least 5 for reliable figures")
    parser.add_argument("--cold", action="store_true", help="no round before those that count")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    options = parser.parse_args()
    if options.write and (options.repeats < 5 or options.cold or options.ways != usual):
        parser.error("the documentation wants 5 warm rounds of all")
    if options.vllm is not None:
        if not options.vllm.exists():
            parser.error(
                f"there is no Python at {options.vllm}: scripts/install-vllm.sh makes an environment of vLLM's"
            )
        options.ways = [*options.ways, "vllm"]
    return options


if __name__ == "__main__":
    main()
