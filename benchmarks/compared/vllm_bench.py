"""Client of benchmarks/serving.py: vLLM's own `vllm bench serve`, repeatedly in one process, since its import is slow.

A program for the Python of a real vLLM. Each line of the input is a JSON array of options and the path of the result,
which is the JSON that `vllm bench serve --save-result` writes.
"""

import argparse
import json
import sys
from pathlib import Path

from vllm.benchmarks.serve import add_cli_args, main


def _run() -> None:
    parser = argparse.ArgumentParser()
    add_cli_args(parser)
    for line in sys.stdin:
        options, path = json.loads(line)
        result = main(parser.parse_args(options))
        sys.stdout.flush()  # the log then has its errors
        partial = Path(f"{path}.partial")
        partial.write_text(json.dumps(result), encoding="utf-8")
        partial.rename(path)


if __name__ == "__main__":
    _run()
