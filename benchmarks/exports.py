"""What `tracellm export` costs a span, in each form and at each size: `python -m benchmarks.exports [SPANS ...]`.

A trace of two processes is made (`benchmarks/big_traces`), and each form is written to nowhere in a process of its own:
microseconds of CPU time and bytes a span, and the most memory that reading and exporting took together. Time and memory
a span should not grow with the number of spans.
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
"""The forms that are made of spans, and one form of a form."""


def measure(folder: Path, form: str) -> str:
    """One line: the form, spans, microseconds and bytes a span, MB in all."""
    run = RunFolder.open(folder)
    spans = len(run.trace.spans)
    before = time.process_time()
    size = sum(map(len, export(run, form.partition(".")[0], name=form)))
    took = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{form:12}{spans:9,} spans {took / spans * 1e6:6.1f} µs/span {size / spans:6.0f} bytes/span {peak:7.0f} MB"


def main() -> None:
    """Measure every form at every size."""
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
