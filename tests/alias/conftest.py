"""tracellm's stand-ins as `vllm` in this process, during a test."""

import sys
from collections.abc import Iterator

import pytest

from tracellm.as_vllm import modules


@pytest.fixture
def vllm_is_tracellm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the stand-ins, and remove them after the test."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    modules.install()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
