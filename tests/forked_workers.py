"""Processes of the engine that start in a tenth of a second, for tests that are not about their start.

A new interpreter imports torch, which takes most of the time of a test with several workers. Here the standard library's
fork server imports it once, and each process is a fork of the server, with nothing of the test in its memory.
"""

import multiprocessing
from multiprocessing.popen_forkserver import Popen

import pytest

from tracellm.engine.ipc.spawn import EngineProcess


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the engine's processes from one that has imported torch and transformers."""
    multiprocessing.set_forkserver_preload(["transformers.models.auto", "tracellm.engine.worker.gpu_worker"])
    monkeypatch.setattr(EngineProcess, "_Popen", Popen)
