"""A real vLLM to compare with, in an environment of its own that `scripts/install-vllm.sh` makes.

To import it takes a process 15 seconds, so what several files of tests ask of it is run once for all of them.
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

__all__ = ["InOneProcess", "ask_vllm", "in_one_process", "in_vllm", "require_vllm", "two_processes"]

_ROOT = Path(__file__).parents[1]
_USUAL = _ROOT / ".venv-vllm" / "bin" / "python"


def require_vllm() -> Path:
    """Its Python: the one that TRACELLM_VLLM_PYTHON names, or `.venv-vllm`'s.

    Without it the test is skipped, saying so; where CI is set, tests/conftest.py makes that a failure.
    """
    python = Path(os.environ.get("TRACELLM_VLLM_PYTHON", _USUAL))
    if not python.exists():
        pytest.skip(f"there is no real vLLM at {python}: scripts/install-vllm.sh makes one")
    return python


def in_vllm(arguments: Sequence[Any], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What became of its Python with these arguments, without what this process has set for its own libraries."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
    return completed(
        [require_vllm(), *arguments],
        within=GUARD,
        cwd=cwd,
        env={**inherited, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **environment},
    )


def ask_vllm(code: str, *arguments: Any, cwd: Path, **environment: str) -> None:
    """Run `code` there, which must end well."""
    done = in_vllm(["-c", code, *arguments], cwd, **environment)
    assert done.returncode == 0, done.stderr[-3000:]


@dataclass(frozen=True)
class InOneProcess:
    """The folder of vllm/attach_work.py, which says what is in it."""

    folder: Path

    @cached_property
    def told(self) -> Any:
        """What the script itself told."""
        return json.loads((self.folder / "told.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> InOneProcess:
    """What a real vLLM did in one process, explained and not."""

    def run(folder: Path) -> None:
        script = _ROOT / "tests" / "vllm" / "attach_work.py"
        # One thread, or a process that is forked from this one finds OpenMP's threads gone, and dies of that.
        one_thread = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        done = in_vllm([script, folder], folder, VLLM_CPU_KVCACHE_SPACE="1", **one_thread)
        assert done.returncode == 0, done.stderr[-3000:]

    return InOneProcess(_once(tmp_path_factory, "vllm-in-one-process", run))


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of examples/vllm_hello.py, explained, as a real vLLM runs it by itself: in several processes."""
    python = require_vllm()
    made = _once(tmp_path_factory, "vllm-two-processes", lambda folder: record_script(python, folder, "two-processes"))
    return made / "two-processes"


def _once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name, which the first of the tests' processes that asks for it makes; the others wait."""
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
