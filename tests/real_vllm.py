"""A real vLLM to compare with, in an environment of its own that `scripts/install-vllm.sh` makes."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ask_vllm", "in_vllm", "require_vllm"]

_USUAL = Path(__file__).parents[1] / ".venv-vllm" / "bin" / "python"


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
    return subprocess.run(
        [require_vllm(), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**inherited, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **environment},
    )


def ask_vllm(code: str, *arguments: Any, cwd: Path, **environment: str) -> None:
    """Run `code` there, which must end well."""
    done = in_vllm(["-c", code, *arguments], cwd, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
