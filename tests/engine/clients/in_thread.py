"""Run a real `EngineCoreProc` with real sockets in a thread of the test's process.

It starts quickly, and tests can inspect it. Inside `engines_in_threads`, clients start their engine cores this way.
Handshake, messages and threads are the usual ones.
"""

import asyncio
import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

import pytest

from tests.engine.parity.drive import watch
from tracellm.engine.core.core_proc import EngineCoreProc
from tracellm.engine.ipc import mp_client
from tracellm.engine.ipc.core_client import EngineCoreClient
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType
from tracellm.engine.ipc.mp_client import AsyncMPClient, SyncMPClient

__all__ = [
    "AsyncInStep",
    "SteppedCore",
    "SyncInStep",
    "as_clients",
    "core_of",
    "engines_in_threads",
    "in_step",
    "watch_client",
]


class SteppedCore(EngineCoreProc):
    """Engine core that makes a step on request, and always answers with outputs, even empty ones."""

    UTILITY_METHODS = (*EngineCoreProc.UTILITY_METHODS, "make_step")

    def run_busy_loop(self) -> None:
        """Handle requests, one after the other."""
        while True:
            self._handle_client_request(*self.input_queue.get())

    def make_step(self) -> list[dict[str, Any]]:
        """Run one step; return its scheduler output, or None if there was nothing to do."""
        steps, unwatch = watch(self.scheduler)
        try:
            self._process_engine_step()
        finally:
            unwatch()
        return steps

    def step_fn(self) -> tuple[dict[int, EngineCoreOutputs] | None, bool]:
        """Run the usual step, but always send outputs."""
        outputs, model_executed = super().step_fn()
        return outputs or {0: EngineCoreOutputs()}, model_executed


class ThreadManager:
    """Replacement for `CoreEngineProcManager`: runs the engine core in a thread."""

    core_class: type[EngineCoreProc] = EngineCoreProc

    def __init__(
        self, vllm_config: Any, executor_class: Any, log_stats: bool, handshake: str, directory: str, **_: Any
    ) -> None:
        self.core: EngineCoreProc | None = None
        self.made = threading.Event()
        """Set when the core exists or its start has failed."""
        sentinel, self._ended = os.pipe()
        vllm_config = pickle.loads(pickle.dumps(vllm_config))  # as a process receives it
        self.sentinels = [sentinel]
        self.process = threading.Thread(
            target=self._run, args=(vllm_config, True, handshake, executor_class, log_stats)
        )

    def start(self) -> None:
        """Start the thread."""
        self.process.start()

    def _run(self, *arguments: Any) -> None:
        try:
            self.core = self.core_class(*arguments)
            gc.unfreeze()  # an engine core freezes its process, which here is that of all tests
            self.made.set()
            self.core.run_busy_loop()
        except SystemExit:
            pass
        except Exception as error:
            if self.core is not None:
                self.core._send_engine_dead(error)
        finally:
            self.made.set()
            if self.core is not None:
                self.core.shutdown()
            os.close(self._ended)

    def wait_for_end(self) -> str:
        """Wait until the thread ends."""
        wait(self.sentinels)
        return "EngineCore_0 ended"

    def close(self) -> None:
        """End the thread."""
        self.made.wait(10)  # the thread gets no answer if the client could not send one
        if self.core is not None:
            self.core.input_queue.put((EngineCoreRequestType.WAKEUP, None))
        self.process.join(10)


@contextmanager
def engines_in_threads(core_class: type[EngineCoreProc] = EngineCoreProc) -> Iterator[pytest.MonkeyPatch]:
    """Make clients start their engine cores in threads."""
    manager = type("Manager", (ThreadManager,), {"core_class": core_class})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mp_client, "CoreEngineProcManager", manager)
        yield patch


def core_of(client: mp_client.MPClient) -> EngineCoreProc:
    """Return the engine core that a client started in a thread."""
    manager: Any = client.resources.engine_manager
    manager.made.wait()
    core: EngineCoreProc = manager.core
    return core


class SyncInStep(SyncMPClient):
    """`SyncMPClient` that requests a step for each call of `get_output`, like an `InprocClient`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.steps: list[dict[str, Any]] = []

    def get_output(self) -> EngineCoreOutputs:
        """Return the outputs of the next step."""
        self.steps += self.call_utility("make_step")
        return super().get_output()


class AsyncInStep(EngineCoreClient):
    """Counterpart of `SyncInStep` with an `AsyncMPClient`, whose event loop runs during each call."""

    def __init__(self, *arguments: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = AsyncMPClient(*arguments)
        self.steps: list[dict[str, Any]] = []

    def get_output(self) -> EngineCoreOutputs:
        """Return the outputs of the next step."""
        self.steps += self.loop.run_until_complete(self.client.call_utility_async("make_step"))
        return self.loop.run_until_complete(self.client.get_output_async())

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send the request."""
        self.loop.run_until_complete(self.client.add_request_async(request))

    def abort_requests(self, request_ids: list[str]) -> None:
        """Send the abort."""
        self.loop.run_until_complete(self.client.abort_requests_async(request_ids))

    def reset_prefix_cache(self) -> bool:
        """Call `reset_prefix_cache` in the engine core."""
        return self.loop.run_until_complete(self.client.reset_prefix_cache_async())

    def shutdown(self) -> None:
        """End the engine core, then the event loop."""
        self.client.shutdown()
        self.loop.run_until_complete(asyncio.sleep(0))  # let the cancelled task end
        self.loop.close()


def watch_client(llm: Any) -> tuple[list[dict[str, Any]], Callable[[], None]]:
    """Record what the client's engine core decides from now on, for `drive.run_batch`."""
    client = llm.llm_engine.engine_core
    client.steps = []
    return client.steps, lambda: None


@contextmanager
def as_clients(client_class: Callable[..., EngineCoreClient]) -> Iterator[None]:
    """Make `LLM(multiprocess_mode=True)` use this client class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mp_client, "SyncMPClient", client_class)
        yield


@contextmanager
def in_step(client_class: Callable[..., EngineCoreClient]) -> Iterator[None]:
    """Make `LLM(multiprocess_mode=True)` use this client class, with an engine core that makes a step on request."""
    with engines_in_threads(SteppedCore), as_clients(client_class):
        yield
