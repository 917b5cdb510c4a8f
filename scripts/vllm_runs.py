"""Recordings of a real vLLM for docs/vllm.md, kept in tests/fixtures/vllm, one archive for each version.

    python -m scripts.vllm_runs .venv-vllm/bin/python            # records the vLLM of that environment
    python -m scripts.vllm_runs .venv-vllm-0.11.1/bin/python

An archive has three run folders: examples/vllm_hello.py in one process; the same in several, vLLM's default; and one
chat request to `vllm serve`. So the page can be generated and tested without vLLM.
"""

import argparse
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from scripts.vllm_server import GUARD, completed, free_port, serving

__all__ = ["MODEL", "RUNS", "SCRIPT", "VERSIONS", "printed", "record", "record_script", "unpack"]

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "tests" / "fixtures" / "vllm"

VERSIONS = ("0.11.1", "0.32.0")
"""Version of the documents, and a current one."""

SCRIPT = "examples/vllm_hello.py"
MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
_SWITCHES = {"in-process": "0", "two-processes": None}
"""Runs of the script by folder, with VLLM_ENABLE_V1_MULTIPROCESSING; None if not set."""
RUNS = (*_SWITCHES, "serve")

_REQUEST = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 16,
    "request_id": "capital",
}
_SERVE = ("--max-model-len", "1024", "--dtype", "float32", "--enforce-eager", "--block-size", "32")
_PRINTED = "printed.txt"


# -- recording --------------------------------------------------------------------------------------------------------


def record(python: Path, folder: Path) -> None:
    """Make all three runs with the vLLM of an environment, in folders of `folder`."""
    for run in _SWITCHES:
        record_script(python, folder, run)
    _record_server(python, folder)


def record_script(python: Path, folder: Path, run: str, *options: str) -> None:
    """Explain the script into `folder`/`run`, with its output in a file beside the recording."""
    switch = _SWITCHES[run]
    chosen = {} if switch is None else {"VLLM_ENABLE_V1_MULTIPROCESSING": switch}
    command = [*_explained(python, folder / run), *options, SCRIPT]
    done = completed(command, within=GUARD, cwd=ROOT, encoding="utf-8", env=_environment() | chosen)
    if done.returncode:
        raise RuntimeError(f"{SCRIPT} failed:\n{done.stdout[-2000:]}{done.stderr[-5000:]}")
    said = "".join(f"{line}\n" for line in done.stdout.splitlines() if line.startswith("Prompt: "))
    (folder / run / _PRINTED).write_text(said, encoding="utf-8")


def _record_server(python: Path, folder: Path) -> None:
    port = free_port()
    command = [*_explained(python, folder / "serve"), "vllm", "serve", MODEL, *_SERVE, "--port", str(port)]
    with serving(command, port, folder / "serve.log", cwd=ROOT, env=_environment()) as server:
        content = json.loads(server.post("/v1/chat/completions", _REQUEST))["choices"][0]["message"]["content"]
        server.end(signal.SIGTERM)
    (folder / "serve" / _PRINTED).write_text(f"{content}\n", encoding="utf-8")


def _explained(python: Path, out: Path) -> list[str]:
    options = ["--explain", "--quiet", "--lang", "en", "--model", f"{MODEL}=tiny", "--out", str(out)]
    return [str(python), "-m", "tracellm", "run", *options]


def _environment() -> dict[str, str]:
    """Return this process's environment without its settings for libraries, and with those for vLLM on a CPU, offline.

    One thread for each computation: the order of sums over several threads differs between machines.
    """
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "VLLM_ENABLE_V1_MULTIPROCESSING")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    ours = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    return {**inherited, **ours}


def printed(run: Path) -> str:
    """Return the output of a run's script or server."""
    return (run / _PRINTED).read_text(encoding="utf-8")


# -- archives ---------------------------------------------------------------------------------------------------------


def _pack(version: str, folder: Path, python: Path) -> Path:
    """Write the recordings of the runs into the version's archive, without names of this machine and its folders."""
    archive = ARCHIVES / f"{version}.tar.xz"
    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:xz") as packed:
        for file in sorted(_files(folder)):
            entry = tarfile.TarInfo(str(file.relative_to(folder)))
            content = _anonymous(file.read_text(encoding="utf-8"), python).encode()
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return archive


def _files(folder: Path) -> Iterable[Path]:
    for run in RUNS:
        yield from (folder / run / "run.json", folder / run / _PRINTED)
        yield from (folder / run / "trace").glob("*.jsonl")


def _anonymous(content: str, python: Path) -> str:
    for path, name in ((python.parents[1], "/venv"), (ROOT, "/tracellm"), (Path.home(), "/home")):
        content = content.replace(str(path), name)
    return re.sub(rf'"{re.escape(socket.gethostname())}"', '"machine"', content)


def unpack(version: str, folder: Path) -> None:
    """Unpack a version's run folders into `folder`."""
    with tarfile.open(ARCHIVES / f"{version}.tar.xz") as packed:
        packed.extractall(folder, filter="data")


def main() -> None:
    """Record the vLLM of an environment."""
    parser = argparse.ArgumentParser(description="Record a real vLLM for docs/vllm.md.")
    parser.add_argument("python", type=Path, help="the interpreter of an environment with vLLM and tracellm")
    python = parser.parse_args().python.absolute()
    ask = [str(python), "-c", "from importlib.metadata import version; print(version('vllm'))"]
    found = subprocess.run(ask, capture_output=True, encoding="utf-8", check=True).stdout.strip()
    version = next((known for known in VERSIONS if found.startswith(known)), None)
    if version is None:
        sys.exit(f"vllm_runs: {python} has vLLM {found}; docs/vllm.md is about {' and '.join(VERSIONS)}")
    with tempfile.TemporaryDirectory() as temporary:
        record(python, Path(temporary))
        print(f"recorded {_pack(version, Path(temporary), python)}")


if __name__ == "__main__":
    main()
