"""Start `EngineCoreProc` instances, one after the other, in one process with real sockets.

A new process takes seconds to start, mostly to load torch. Inside `engines_in_one_process`, clients share a process
that already runs. Each client gets its own `EngineCoreProc` with its own settings, which ends with the client.
Handshake, messages and threads are those of a process started by `launch.py`.

`make parity` runs about a hundred engines this way. Start and end of real processes are tested in test_processes.py.
"""

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

from tests.engine.clients.in_thread import SteppedCore
from tracellm.engine.core.core_proc import EngineCoreProc
from tracellm.engine.ipc import mp_client
from tracellm.engine.ipc.messages import EngineCoreRequestType

__all__ = ["engines_in_one_process"]


def _serve(orders: "Connection[Any, Any]") -> None:
    """Run engine cores, one after the other, until the host closes the connection."""
    while True:
        try:
            stepped, settings = orders.recv()
        except EOFError:
            return
        _serve_one(orders, SteppedCore if stepped else EngineCoreProc, settings)


def _serve_one(orders: "Connection[Any, Any]", core_class: type[EngineCoreProc], settings: tuple[Any, ...]) -> None:
    cores: list[EngineCoreProc] = []
    made = threading.Event()

    def end_when_told() -> None:
        orders.recv()
        made.wait()
        for core in cores:
            core.input_queue.put((EngineCoreRequestType.WAKEUP, None))

    watcher = threading.Thread(target=end_when_told)
    watcher.start()
    how = "ended"
    try:
        cores.append(core_class(*settings))
        made.set()
        cores[0].run_busy_loop()
    except SystemExit:
        pass
    except Exception as error:
        how = f"failed with {type(error).__name__}: {error}"
        for core in cores:
            core._send_engine_dead(error)
    finally:
        made.set()
        for core in cores:
            core.shutdown()
    orders.send(how)  # the client ends it in any case
    watcher.join()


class _Host:
    """Host process, as seen by its clients."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.orders, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), name="EngineCores", daemon=True)
        self.process.start()
        theirs.close()

    def close(self) -> None:
        """End the process."""
        self.orders.close()
        self.process.join()


class _Manager:
    """Replacement for `CoreEngineProcManager`: runs an engine core in the host process."""

    host: _Host
    stepped: bool

    def __init__(
        self, vllm_config: Any, executor_class: Any, log_stats: bool, handshake: str, directory: str, **_: Any
    ) -> None:
        self.order = (self.stepped, (vllm_config, True, handshake, executor_class, log_stats))
        sentinel, self._ended = multiprocessing.Pipe(duplex=False)
        self.sentinels = [sentinel]
        self.process = threading.Thread(target=self._follow)
        self.end = ""

    def start(self) -> None:
        """Start an engine core."""
        self.host.orders.send(self.order)
        self.process.start()

    def _follow(self) -> None:
        try:
            self.end = self.host.orders.recv()
        except EOFError:
            self.end = "has died with its process"
        self._ended.close()

    def wait_for_end(self) -> str:
        """Wait until the engine core has ended."""
        wait(self.sentinels)
        return f"EngineCore_0 {self.end}"

    def close(self) -> None:
        """End the engine core."""
        self.host.orders.send("end")
        self.process.join()


@contextmanager
def engines_in_one_process() -> Iterator[Any]:
    """Make clients start their engine cores in one process.

    `stepped=True` gives engine cores that make a step only on request.

    Yields:
        A context manager for each client: `with engines(stepped=False): LLM(multiprocess_mode=True)`.
    """
    host = _Host()

    @contextmanager
    def engines(stepped: bool) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            manager = type("Manager", (_Manager,), {"host": host, "stepped": stepped})
            patch.setattr(mp_client, "CoreEngineProcManager", manager)
            yield

    try:
        yield engines
    finally:
        host.close()
