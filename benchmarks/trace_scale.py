"""Cost per span of traces with a thousand to a million spans: to convert, read and fold them.

    python -m benchmarks.trace_scale curve [--most 1000000] [--repeats 3] [--docs]
    python -m benchmarks.trace_scale make FOLDER [--spans 1000000] [--processes 1]

`curve` measures each size in new processes: CPU time, and peak memory above that after all imports. It prints a table;
with `--docs` it updates docs/scale.md and docs/zh/scale.md. A million spans take one or two minutes and 0.8 GB of disk.
`make` writes a big run folder to try other tools on. The traces come from `benchmarks.big_traces`.
"""

# ruff: noqa: T201  (it prints figures)
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.big_traces import write_run
from benchmarks.pages import write_pages

__all__ = ["COLUMNS", "PAGES", "SIZES", "main", "table"]

SIZES = [(1_000, 1), (10_000, 1), (100_000, 1), (1_000_000, 1), (1_000_000, 2)]
"""Number of spans and processes in each row."""

COLUMNS = {
    "en": "spans | processes | on disk | convert | memory | read | index | call tree | fold | read to fold | memory",
    "zh": "span | 进程 | 磁盘 | 转换 | 内存 | 读取 | 索引 | 调用树 | 折叠 | 从读取到折叠 | 内存",
}
_NOTES = {
    "en": "Made by `python -m benchmarks.trace_scale curve --docs` on {date}: {machine}, Python {python}; processor "
    "time, the median of {repeats}.",
    "zh": "由 `python -m benchmarks.trace_scale curve --docs` 生成，{date}：{machine}，Python {python}；处理器时间，"
    "取 {repeats} 次的中位数。",
}
_ROOT = Path(__file__).parents[1]
PAGES = {"en": _ROOT / "docs" / "scale.md", "zh": _ROOT / "docs" / "zh" / "scale.md"}
_STAGES = ("read", "index", "tree", "fold")

Measured = dict[str, Any]


def peak_bytes() -> int:
    """Return the peak memory of this process; `resource` would include its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


# -- the measured processes -------------------------------------------------------------------------------------------


def measure_writing(folder: Path, spans: int) -> Measured:
    """Convert a record file, as at the end of a run."""
    from benchmarks.big_traces.recorded import record_run
    from tracellm.probes.spans.converter import convert_file

    path = record_run(folder, spans)
    before = peak_bytes()
    done = convert_file(path, [path])
    return {"write": done.seconds, "spans": done.spans, "write_bytes": peak_bytes() - before}


def measure_reading(folder: Path) -> Measured:
    """Read a recording and fold it, as every report does first."""
    from tracellm.report.tree.folded import fold_calls
    from tracellm.report.tree.nodes import CallTree, call_tree
    from tracellm.trace.run_folder import RunFolder

    before, seconds = peak_bytes(), {}

    def timed(stage: str, act: Callable[[], Any]) -> Any:
        start = time.thread_time()
        result = act()
        seconds[stage] = time.thread_time() - start
        return result

    run = timed("read", lambda: RunFolder.open(folder))
    assert not run.problems, run.problems
    read_bytes = peak_bytes() - before
    trace = run.trace
    timed("index", lambda: (trace.by_id, trace.roots, trace.children(trace.spans[0]), trace.messages))
    nodes = timed("tree", lambda: call_tree(trace))
    folded = timed("fold", lambda: fold_calls(CallTree(trace, nodes)).roots)
    assert folded
    return {**seconds, "spans": len(trace.spans), "read_bytes": read_bytes, "bytes": peak_bytes() - before}


# -- the measurement --------------------------------------------------------------------------------------------------


def measure(spans: int, processes: int, repeats: int) -> Measured:
    """Return one row: the median seconds and bytes of each stage, for all spans."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        folder.mkdir()
        conversion: Measured = {"write": None, "write_bytes": None}
        if processes == 1:
            conversions = [_child("write", str(_fresh(folder, i)), "--spans", str(spans)) for i in range(repeats)]
            conversion = {name: _median([repeat[name] for repeat in conversions]) for name in ("write", "write_bytes")}
            folder = folder / "0"
        else:
            write_run(folder, spans, processes)
        disk = sum(file.stat().st_size for file in (folder / "trace").iterdir())
        read = [_child("read", str(folder)) for _ in range(repeats)]
    return {**{name: _median([repeat[name] for repeat in read]) for name in read[0]}, **conversion, "disk": disk}


def _fresh(folder: Path, number: int) -> Path:
    """Return the folder of a repeat, and delete those before it except the first."""
    for old in folder.glob("[1-9]*/trace/*"):
        old.unlink()
    (folder / str(number)).mkdir()
    return folder / str(number)


def _child(*arguments: str) -> Measured:
    command = [sys.executable, "-m", "benchmarks.trace_scale", *arguments]
    done = subprocess.run(
        command, cwd=_ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True
    )
    return dict(json.loads(done.stdout))


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def table(rows: Sequence[tuple[int, Measured]], lang: str) -> str:
    """Return the table in Markdown; microseconds and bytes are per span."""
    heads = COLUMNS[lang].split(" | ")
    lines = [heads, ["---:"] * len(heads)]
    for processes, row in rows:
        count, has_conversion = row["spans"], row["write"] is not None
        total = sum(row[stage] for stage in _STAGES)
        lines.append(
            [
                f"{count:,}",
                str(processes),
                f"{row['disk'] / 1e6:,.1f} MB",
                f"{row['write'] / count * 1e6:.1f} µs" if has_conversion else "",
                f"{row['write_bytes'] / 1e6:,.0f} MB" if has_conversion else "",
                *(f"{row[stage] / count * 1e6:.1f} µs" for stage in _STAGES),
                f"{total:.2f} s, {total / count * 1e6:.1f} µs",
                f"{row['bytes'] / 1e6:,.0f} MB, {row['bytes'] / count:,.0f} B",
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _note(lang: str, repeats: int) -> str:
    machine = f"{platform.machine()}, {os.cpu_count()} CPU"
    return _NOTES[lang].format(
        date=time.strftime("%Y-%m-%d"), machine=machine, python=platform.python_version(), repeats=repeats
    )


def _curve(most: int, repeats: int, docs: bool) -> None:
    rows = []
    for spans, processes in SIZES:
        if spans <= most:
            rows.append((processes, measure(spans, processes, repeats)))
            print(table(rows[-1:], "en").splitlines()[-1], file=sys.stderr)
    print(table(rows, "en"))
    for row in rows:
        print(json.dumps(row))
    if docs:
        write_pages(PAGES, "scale", {lang: f"{table(rows, lang)}\n{_note(lang, repeats)}\n" for lang in PAGES})


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    curve = commands.add_parser("curve", help="measure all sizes")
    curve.add_argument("--most", type=int, default=1_000_000, help="leave out larger traces")
    curve.add_argument("--repeats", type=int, default=3)
    curve.add_argument("--docs", action="store_true", help="write the table into the documentation")
    make = commands.add_parser("make", help="write a big run folder")
    make.add_argument("--processes", type=int, default=1, choices=(1, 2))
    make.add_argument("--detail", default="kernel", help="request, step, layer or kernel: what lies deeper is left out")
    write = commands.add_parser("write", help="measure writing one (for curve)")
    read = commands.add_parser("read", help="measure reading one (for curve)")
    for command in (make, write, read):
        command.add_argument("folder", type=Path)
    for command in (make, write):
        command.add_argument("--spans", type=int, default=1_000_000)
    options = parser.parse_args()
    if options.command == "curve":
        _curve(options.most, options.repeats, options.docs)
    elif options.command == "make":
        num_bytes = write_run(options.folder, options.spans, options.processes, detail=options.detail)
        print(f"{options.folder}: {num_bytes / 1e6:.0f} MB of traces")
    elif options.command == "write":
        print(json.dumps(measure_writing(options.folder, options.spans)))
    else:
        print(json.dumps(measure_reading(options.folder)))


if __name__ == "__main__":
    main()
