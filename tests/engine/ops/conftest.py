"""Where Triton's kernels run: in its interpreter, on the CPU; or, with `pytest -m gpu`, compiled, on a GPU.

Triton decides that once for a process, when kernels are defined. So they are imported here, before any test module of
this folder can do so.
"""

from importlib.util import find_spec

import pytest


def pytest_pycollect_makemodule(parent: pytest.Collector) -> None:
    """Unless GPU tests alone were asked for, the kernels are those of the interpreter."""
    if parent.config.option.markexpr == "gpu" or find_spec("triton") is None:
        return
    with pytest.MonkeyPatch.context() as patch:  # for the import only: no process that a test starts shall inherit it
        patch.setenv("TRITON_INTERPRET", "1")
        import tracellm.engine.ops.triton  # noqa: F401


@pytest.fixture(
    params=[pytest.param("cpu", id="interpreted"), pytest.param("cuda", id="compiled", marks=pytest.mark.gpu)]
)
def device(request: pytest.FixtureRequest) -> str:
    """Where a test's tensors are, and with them its kernels."""
    if request.param == "cuda":
        import torch

        from tracellm.engine.ops.triton.launch import INTERPRETED

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
        if INTERPRETED:
            pytest.skip("the kernels of this process are interpreted; `pytest -m gpu` compiles them")
    return request.param
