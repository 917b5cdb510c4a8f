"""Where Triton's kernels run: in its interpreter, on the CPU; or, with `pytest -m gpu`, compiled, on a GPU.

tests/conftest.py sees to that, as Triton decides it once for a process.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

from tests.engine.ops.implementations import EVERY, Implementation
from tracellm.engine.ops.cpu import native

collect_ignore_glob = [] if find_spec("triton") else ["test_triton_*"]  # it is made for Linux only


@pytest.fixture(
    params=[pytest.param("cpu", id="interpreted"), pytest.param("cuda", id="compiled", marks=pytest.mark.gpu)]
)
def device(request: pytest.FixtureRequest) -> str:
    """Where a test's tensors are, and with them its kernels."""
    need(request.param, "triton")
    return request.param


@pytest.fixture(params=EVERY)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Each implementation on each device that it runs on."""
    need(request.param.device, request.param.name)
    return request.param


@pytest.fixture
def fresh() -> Iterator[None]:
    """The CPU's kernels are looked for anew, in the test and after it."""
    native.load.cache_clear()
    yield
    native.load.cache_clear()


def need(device: str, name: str) -> None:
    """Skip the test where this implementation cannot run on this device."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if name == "triton":
        pytest.importorskip("triton")
        from tracellm.engine.ops.triton.launch import INTERPRETED

        if INTERPRETED and device == "cuda":
            pytest.skip("the kernels of this process are interpreted; `pytest -m gpu` compiles them")
