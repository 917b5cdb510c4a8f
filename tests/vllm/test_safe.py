"""What must not happen to a program in which vLLM's functions are wrapped: broken runs, calls told twice, memory that
grows."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.probes.tracing import outline, record
from tests.vllm.small_vllm import small_vllm
from tracellm.probes.spec import Entry


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The small package's modules."""
    with small_vllm(tmp_path / "installed") as modules:
        yield modules


def test_a_function_that_another_module_imports_is_told_once(vllm: dict[str, Any], tmp_path: Path) -> None:
    """0.32's `openai/api_server.py` only passes on what its launchers define; both are in the catalog."""
    folder = Path(sys.modules["vllm"].__path__[0])
    (folder / "launcher.py").write_text("def run_server(): pass")
    (folder / "api_server.py").write_text("from vllm.launcher import run_server")
    importlib.invalidate_caches()
    entries = [Entry("vllm.api_server:run_server", "request", other_targets=("vllm.launcher:run_server",))]
    run = lambda: importlib.import_module("vllm.api_server").run_server()  # noqa: E731
    assert outline(record(tmp_path / "run", run, entries)) == "script.py\n  run_server"
