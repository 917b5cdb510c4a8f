"""Speed of the engine beside others, with the same weights, token ids, dtype, threads and KV budget.

    python benchmarks/compare.py [--only toy|0.5B|1.5B|0.6B] [--dtype bfloat16] [--repeats 5] [--vllm PYTHON] [--write]

The engines on a CPU: tracellm, recorded and not; transformers' `generate` on padded batches and its continuous
batching; and a real vLLM in the environment of scripts/install-vllm.sh. On a GPU (0.6B): tracellm, recorded and not,
and with PyTorch's operations. Each has its own process, which keeps its model in memory.

First all generate greedily, and equal outputs are counted. Then they take turns, each round starting with the next one;
the machine's ceilings are measured in the same rounds. In float32 the largest model takes 7 GB for each engine, so
choose a few with --ways; it takes an hour. Run it on an idle machine.
"""

# ruff: noqa: T201  (it prints tables)
import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # also runs as a script

from benchmarks.compared.process import EngineFailed
from benchmarks.compared.rounds import ENGINES, PEERS, REFERENCE, WAYS, WAYS_ON, Plan, measure
from benchmarks.compared.shapes import SHAPES
from benchmarks.compared.tables import comparison
from benchmarks.pages import write_pages
from tracellm.bench.machine import describe, matrix_instructions
from tracellm.bench.workload import parse_lengths

__all__ = ["PAGES", "main"]

_ROOT = Path(__file__).parents[1]
PAGES = {"en": _ROOT / "docs" / "performance.md", "zh": _ROOT / "docs" / "zh" / "performance.md"}
_USUAL_VLLM = _ROOT / ".venv-vllm" / "bin" / "python"
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def main() -> None:
    """Measure, and print or write the tables."""
    options = _options()
    command = "python benchmarks/compare.py"
    further = [] if options.dtype == "bfloat16" else [f"--dtype {options.dtype}"]
    if list(options.ways) != [*WAYS_ON[options.device]]:
        further.append(f"--ways {' '.join(options.ways)}")
    if options.device == "cpu" and options.dtype == "bfloat16" and not _BFLOAT16 & set(matrix_instructions()):
        _log("this processor has no instructions for bfloat16, and will be very slow; use --dtype float32")
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.checkpoints or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            for name in options.only:
                figures = measure(name, SHAPES[name], _plan(options, folder))
                if options.json:
                    print(json.dumps(figures), flush=True)
                full_command = " ".join([command, f"--only {name}", *further, "--write"])
                tables = {lang: comparison(figures, lang, full_command, describe(options.threads)) for lang in PAGES}
                if not options.json:
                    print(tables["en"], flush=True)
                if options.write:
                    write_pages(PAGES, f"compare-{name}", tables)
    except EngineFailed as error:
        sys.exit(f"compare.py: {error}")


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _plan(options: argparse.Namespace, folder: Path) -> Plan:
    pythons: dict[str, Any] = dict.fromkeys(ENGINES, sys.executable) | {"vllm_engine": options.vllm}
    return Plan(
        ways=options.ways,
        dtype=options.dtype,
        threads=options.threads,
        repeats=options.repeats,
        pythons=pythons,
        folder=folder,
        requests=options.requests,
        outputs=parse_lengths("--output-len", options.output_len) if options.output_len else None,
        check_requests=options.check,
        log=_log,
    )


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*SHAPES], help="one model; may be repeated")
    parser.add_argument("--ways", nargs="+", choices=[*WAYS], help="some of the engines")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each engine")
    parser.add_argument("--repeats", type=int, default=5, help="number of rounds; at least 5 for --write")
    parser.add_argument("--check", type=int, default=8, metavar="N", help="requests to compare in float32; 0: none")
    parser.add_argument("--requests", type=int, help="another number of requests than the model's")
    parser.add_argument("--output-len", metavar="N-M", help="other lengths of outputs than the model's")
    parser.add_argument(
        "--checkpoints", type=Path, help="a folder to keep the checkpoints in; otherwise a temporary one"
    )
    usual = os.environ.get("TRACELLM_VLLM_PYTHON", str(_USUAL_VLLM))
    parser.add_argument("--vllm", default=usual, metavar="PYTHON", help="the Python of a real vLLM's environment")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, a line for each model")
    parser.add_argument("--write", action="store_true", help="put the tables into the documentation")
    options = parser.parse_args()
    device = options.device = _device()
    options.only = options.only or [name for name, shape in SHAPES.items() if shape.device == device]
    options.ways = options.ways or [*WAYS_ON[device]]
    if wrong := [name for name in options.only if SHAPES[name].device != device]:
        how = "there is none here" if device == "cpu" else "CUDA_VISIBLE_DEVICES= hides the one that is here"
        parser.error(f"{wrong[0]} is for a {'GPU' if device == 'cpu' else 'CPU, and not for a GPU'}: {how}")
    if wrong := [way for way in options.ways if way not in WAYS_ON[device]]:
        parser.error(f"{wrong[0]} is not measured on a {'GPU' if device == 'cuda' else 'CPU'}")
    if "vllm" in options.ways and not Path(options.vllm).exists():
        parser.error(f"there is no vLLM at {options.vllm}: scripts/install-vllm.sh makes one; or leave it out: --ways")
    required = REFERENCE, PEERS[device]
    if options.write and (
        options.repeats < 5 or not set(required) <= set(options.ways) or options.requests or options.output_len
    ):
        parser.error(f"the documentation needs 5 rounds of {' and '.join(required)} and the models' own requests")
    return options


if __name__ == "__main__":
    main()
