"""A real vLLM for comparisons, in an environment made by `scripts/install-vllm.sh`.

Its import takes a process 15 seconds, so runs used by several test files are made once for all of them.
"""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from scripts.vllm_runs import record_script
from scripts.vllm_server import GUARD, completed

__all__ = ["InOneProcess", "ask_vllm", "in_one_process", "in_vllm", "require_vllm", "two_processes", "vllm_version"]

_ROOT = Path(__file__).parents[1]
_USUAL = _ROOT / ".venv-vllm" / "bin" / "python"


def require_vllm() -> Path:
    """Return its Python: the one in TRACELLM_VLLM_PYTHON, or `.venv-vllm`'s.

    Without it the test is skipped; where CI is set, tests/conftest.py makes that a failure.
    """
    python = Path(os.environ.get("TRACELLM_VLLM_PYTHON", _USUAL))
    if not python.exists():
        pytest.skip(f"there is no real vLLM at {python}: scripts/install-vllm.sh makes one")
    return python


def vllm_version() -> str:
    """Return its version from its package's folder; empty if there is none."""
    packages = Path(os.environ.get("TRACELLM_VLLM_PYTHON", _USUAL)).parents[1]
    found = next(packages.glob("lib/python3*/site-packages/vllm-*.dist-info"), None)
    return "" if found is None else found.stem.removeprefix("vllm-")


def in_vllm(arguments: Sequence[Any], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run its Python with these arguments, without this process's settings for its own libraries."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
    return completed(
        [require_vllm(), *arguments],
        within=GUARD,
        cwd=cwd,
        env={**inherited, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **environment},
    )


def ask_vllm(code: str, *arguments: Any, cwd: Path, **environment: str) -> None:
    """Run `code` in it, and fail unless it ends well."""
    done = in_vllm(["-c", code, *arguments], cwd, **environment)
    assert done.returncode == 0, done.stderr[-3000:]


@dataclass(frozen=True)
class InOneProcess:
    """The folder of vllm/attach_work.py, documented there."""

    folder: Path

    @cached_property
    def results(self) -> Any:
        """The results written by the script itself."""
        return json.loads((self.folder / "results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> InOneProcess:
    """Runs of a real vLLM in one process, explained and not."""

    def run(folder: Path) -> None:
        script = _ROOT / "tests" / "vllm" / "attach_work.py"
        # One thread: OpenMP's threads do not survive a fork, and the forked process would crash.
        one_thread = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        done = in_vllm([script, folder], folder, VLLM_CPU_KVCACHE_SPACE="1", **one_thread)
        assert done.returncode == 0, done.stderr[-3000:]

    return InOneProcess(_once(tmp_path_factory, "vllm-in-one-process", run))


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of examples/vllm_hello.py, explained, under a real vLLM's default of several processes."""
    python = require_vllm()
    made = _once(tmp_path_factory, "vllm-two-processes", lambda folder: record_script(python, folder, "two-processes"))
    return made / "two-processes"


def _once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name, made by the first test process that needs it; the others wait."""
    require_vllm()
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, made = shared / name, shared / f"{name}.made"
    with FileLock(shared / f"{name}.lock", timeout=2 * GUARD):
        if not made.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            made.touch()
    return folder
