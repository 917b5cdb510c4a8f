"""A real `EngineCoreProc` behind real sockets in a real process, which serves one client after the other.

A process of its own takes seconds to start, most of them to load torch. Inside `engines_in_one_process` the clients
find one that was started before: there each of them gets an `EngineCoreProc` of its own, made with its settings and
ended with the client, as in the process that `launch.py` would start. Handshake, messages and threads are what
they always are. `make parity` runs some hundred engines so; that a process starts and ends as it should is tested in
test_processes.py.
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
    """What the process runs: engine cores, one after the other, until nobody is there to want one."""
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

    told = threading.Thread(target=end_when_told)
    told.start()
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
    orders.send(how)  # the client tells it to end in any case, then or before
    told.join()


class _Host:
    """The process, as the clients of this one see it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.orders, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), name="EngineCores", daemon=True)
        self.process.start()
        theirs.close()

    def close(self) -> None:
        """End it."""
        self.orders.close()
        self.process.join()


class _Manager:
    """In place of a `CoreEngineProcManager`: an engine core in the process of the host."""

    host: _Host
    stepped: bool

    def __init__(self, vllm_config: Any, executor_class: Any, log_stats: bool, handshake: str, directory: str) -> None:
        self.order = (self.stepped, (vllm_config, True, handshake, executor_class, log_stats))
        self.sentinel, self._ended = multiprocessing.Pipe(duplex=False)
        self.process = threading.Thread(target=self._follow)
        self.end = ""

    def start(self) -> None:
        """Order an engine core."""
        self.host.orders.send(self.order)
        self.process.start()

    def _follow(self) -> None:
        try:
            self.end = self.host.orders.recv()
        except EOFError:
            self.end = "has died with its process"
        self._ended.close()

    def wait_for_end(self) -> str:
        """Wait until it has ended."""
        wait([self.sentinel])
        return self.describe_end()

    def describe_end(self) -> str:
        """How it did."""
        return self.end

    def close(self) -> None:
        """End it."""
        self.host.orders.send("end")
        self.process.join()


@contextmanager
def engines_in_one_process() -> Iterator[Any]:
    """Inside, clients start engine cores in one process; `stepped=True` for those that make a step when asked to.

    Yields:
        A context manager to use for each client: `with engines(stepped=False): LLM(multiprocess_mode=True)`.
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
