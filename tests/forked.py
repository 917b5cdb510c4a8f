"""Processes that start in a tenth of a second, for tests that are not about their start.

A new interpreter imports torch, which takes most of the time of a test with several workers or of a graded lab. Here
the standard library's fork server imports it once. Each process is a fork of the server, with nothing of the test, and
nothing of tracellm, in its memory.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.popen_forkserver import Popen
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["forked_students", "forked_workers"]


@pytest.fixture(scope="session")
def fork_server() -> None:
    """Import the libraries in the fork server, once it is started."""
    multiprocessing.set_forkserver_preload(["torch", "transformers.models.auto"])


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch, fork_server: None) -> None:
    """Fork the processes of an engine in the test's process."""
    monkeypatch.setattr("tracellm.engine.ipc.spawn.EngineProcess._Popen", Popen)


@pytest.fixture
def forked_students(monkeypatch: pytest.MonkeyPatch, fork_server: None) -> None:
    """Fork the processes that run a student's code; torch is imported before the jail and its limits."""
    replaced = SimpleNamespace(**{**vars(subprocess), "Popen": _StudentsProcess})
    monkeypatch.setattr("tracellm.lab.sandbox.run.subprocess", replaced)


class _StudentsProcess:
    """Part of `subprocess.Popen` that the sandbox uses, as a fork."""

    def __init__(self, command: Sequence[str], pass_fds: Iterable[int], env: Mapping[str, str], **options: Any) -> None:
        assert command[1:4] == ["-P", "-m", "tracellm.lab.sandbox.worker"]
        stdin, own_in = multiprocessing.Pipe(duplex=False)
        own_out, stdout = multiprocessing.Pipe(duplex=False)
        (results_fd,) = pass_fds
        results = Connection(os.dup(results_fd), readable=False)
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(target=_run_student, args=(dict(env), stdin, stdout, results))
        self._process.start()
        for connection in (stdin, stdout, results):
            connection.close()
        self.stdin, self.stdout = (
            os.fdopen(os.dup(end.fileno()), mode) for end, mode in ((own_in, "wb"), (own_out, "rb"))
        )
        own_in.close()
        own_out.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0)
        return self._process.exitcode


def _run_student(env: dict[str, str], stdin: Connection, stdout: Connection, results: Connection) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    for connection, descriptors in ((stdin, (0,)), (stdout, (1, 2))):
        for descriptor in descriptors:
            os.dup2(connection.fileno(), descriptor)
        connection.close()
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1, encoding="utf-8") for descriptor in (1, 2))
    sys.argv = ["worker", str(results.fileno())]
    sys.dont_write_bytecode = True

    from tracellm.lab.sandbox.worker import main

    main()
