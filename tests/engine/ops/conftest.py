"""Fixtures for tests of operations.

Triton's kernels run in its interpreter on the CPU or, with `pytest -m gpu`, compiled on a GPU. tests/conftest.py sets
this, as Triton reads it once for a process.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.engine.ops.implementations import EVERY, Implementation, need_triton
from tracellm.engine.model_executor.ops import cpu_ops
from tracellm.engine.model_executor.ops.cpu import native

collect_ignore_glob = [] if find_spec("triton") else ["test_triton_*"]  # Linux only


@pytest.fixture(
    params=[pytest.param("cpu", id="interpreted"), pytest.param("cuda", id="compiled", marks=pytest.mark.gpu)]
)
def device(request: pytest.FixtureRequest) -> str:
    """Device of a test's tensors and kernels."""
    need_triton(request.param)
    return request.param


@pytest.fixture(params=EVERY)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Each implementation on each device that it supports."""
    if request.param.name == "triton":
        need_triton(request.param.device)
    return request.param


@pytest.fixture
def own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use this package's CPU kernels even on a CPU where oneDNN's are faster."""
    if native.load().library is None:
        pytest.skip(f"needs the compiled kernels: {native.load().reason}")
    monkeypatch.setattr(cpu_ops, "_onednn_is_faster", lambda dtype: False)


@pytest.fixture
def fresh() -> Iterator[None]:
    """Look up the CPU's kernels again, in the test and after it."""
    native.load.cache_clear()
    yield
    native.load.cache_clear()
