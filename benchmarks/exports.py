"""Cost per span of `tracellm export`, for each format and size: `python -m benchmarks.exports [SPANS ...]`.

Each format of a made trace with two processes (`benchmarks/big_traces`) is exported in its own process and discarded.
The output has CPU microseconds and bytes per span, and the peak memory of reading and exporting. Time and memory per
span should not grow with the number of spans.
"""

# ruff: noqa: T201  (it prints figures)
import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.big_traces import write_run
from tracellm.report.export import FORMATS, export
from tracellm.trace.run_folder import RunFolder

_OF_SPANS = [*(format for format in FORMATS if format != "mermaid"), "otlp.pb"]
"""The formats made of spans, and a variant of one."""


def measure(folder: Path, form: str) -> str:
    """Return one line: the format, number of spans, microseconds and bytes per span, and peak MB."""
    run = RunFolder.open(folder)
    spans = len(run.trace.spans)
    before = time.process_time()
    size = sum(map(len, export(run, form.partition(".")[0], name=form)))
    cpu_seconds = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cost = f"{cpu_seconds / spans * 1e6:6.1f} µs/span {size / spans:6.0f} bytes/span"
    return f"{form:12}{spans:9,} spans {cost} {peak:7.0f} MB"


def main() -> None:
    """Measure every format at every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spans", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "FORM"), help="one form of one run, in this process")
    arguments = parser.parse_args()
    if arguments.measure:
        print(measure(Path(arguments.measure[0]), arguments.measure[1]))
        return
    for spans in arguments.spans:
        with tempfile.TemporaryDirectory() as folder:
            write_run(Path(folder), spans, 2)
            for form in _OF_SPANS:
                subprocess.run([sys.executable, "-m", "benchmarks.exports", "--measure", folder, form], check=True)


if __name__ == "__main__":
    main()
