"""What a trace of a thousand to a million spans costs: to write, to read back, to fold.

    python -m benchmarks.trace_scale make FOLDER [--spans 1000000] [--processes 1]

`make` writes a big run folder (`benchmarks.big_traces`), for whoever wants to open one.
"""

# ruff: noqa: T201  (it prints figures)
import argparse
from pathlib import Path

from benchmarks.big_traces import big_trace, played, write_run

__all__ = ["big_trace", "main", "played", "write_run"]


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write a big run folder")
    make.add_argument("folder", type=Path)
    make.add_argument("--spans", type=int, default=1_000_000)
    make.add_argument("--processes", type=int, default=1, choices=(1, 2))
    make.add_argument("--detail", default="kernel", help="request, step, layer or kernel: what lies deeper is left out")
    options = parser.parse_args()
    written = write_run(options.folder, options.spans, options.processes, detail=options.detail)
    print(f"{options.folder}: {written / 1e6:.0f} MB of traces")


if __name__ == "__main__":
    main()
