"""Test that every kernel compiles for a GPU; the interpreter runs kernels as Python and cannot show it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KERNELS = [ROOT / "tracellm/engine" / folder for folder in ("attention/ops", "model_executor/ops/triton")]


def test_every_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    """Triton's compiler, which needs no GPU, compiles every kernel."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.ops.compile_kernels"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    sizes = dict(line.split() for line in done.stdout.splitlines())
    sources = [file.read_text() for folder in KERNELS for file in folder.glob("*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (\w+_kernel)\(", source, re.M)}
    assert sizes.keys() == defined
    assert all(int(size) > 1000 for size in sizes.values())
