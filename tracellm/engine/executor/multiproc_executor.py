"""The executor with a process for each worker.

`collective_rpc` sends a method's name and arguments to all workers, and each calls the method in its busy loop. In a
step only the output rank returns the result.

vLLM: vllm/v1/executor/multiproc_executor.py, with the same names. vLLM broadcasts over a queue in shared memory
(vllm/distributed/device_communicators/shm_broadcast.py); here a call is pickled once and sent over a pipe to each
worker (distributed/message_queue.py). Left out: several machines.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import inf
from multiprocessing import Pipe, current_process
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.distributed.message_queue import MessageQueue
from tracellm.engine.entrypoints.interrupts import deferred_interrupts
from tracellm.engine.executor.distributed_executor import (
    DistributedExecutor,
    FutureWrapper,
    error_response,
    run_method,
    serialize,
)
from tracellm.engine.ipc.spawn import EngineProcess, describe_exit, end_with_parent, exit_silently, sigint_blocked
from tracellm.engine.worker.worker_base import WorkerWrapperBase

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig

__all__ = ["MultiprocExecutor", "WorkerProc", "WorkerProcHandle"]

_END_TIMEOUTS = (5.0, 1.0)
"""Seconds that workers have to end after their pipes are closed, and then after SIGTERM."""
_FAILED_END_TIMEOUTS = (0.0, 0.5)
"""The same after a failure, when the others may wait for a worker that is gone."""
_DEATH_TIMEOUT = 0.5
"""Seconds after a worker's error in which the death of another one is taken for its cause."""
_LARGE_MESSAGE = 1 << 16
"""Bytes from which a message may not fit into a pipe."""
_SHORT_POLL_INTERVAL = 0.005
"""Seconds between checks whether a large message was sent."""
_POLL_INTERVAL = 0.2
"""Seconds between checks for signals while waiting for the workers."""


@dataclass(frozen=True)
class WorkerProcHandle:
    """The executor's handle of one worker."""

    process: EngineProcess
    rank: int
    rpc_broadcast_mq: MessageQueue
    """Calls to the worker."""
    worker_response_mq: MessageQueue
    """Its responses."""
    results: deque[Any] = field(default_factory=deque)
    """Results that have arrived, and that no call has waited for yet."""


class MultiprocExecutor(DistributedExecutor):
    """Executor with a process for each worker."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self.workers: list[WorkerProcHandle] = []
        self._directory = tempfile.mkdtemp(prefix="tracellm-workers-")
        self._finalizer = weakref.finalize(self, _end_workers, self.workers, self._directory, _END_TIMEOUTS)
        # At exit, before multiprocessing, which would wait for the workers forever; see `MPClient`.
        atexit.register(self._finalizer)
        self._at_exit = multiprocessing.util.Finalize(None, self._finalizer, exitpriority=0)
        with self.aborted_on_error():
            self._start_workers()
            self.collective_rpc("load_model")

    def _start_workers(self) -> None:
        """Start the processes, and wait until all have joined.

        Raises:
            EngineError: this process may not start others, or a worker's own error.
        """
        import torch

        if current_process().daemon:
            raise EngineError(
                "The workers cannot have processes of their own here: this process is a daemonic one of Python's "
                "multiprocessing (those of a Pool are), and may not start others. Leave out `tensor_parallel_size` and "
                "`distributed_executor_backend`, or use Process(daemon=False)."
            )
        num_threads = max(1, torch.get_num_threads() // self.world_size)
        distributed_init_method = f"file://{self._directory}/rendezvous"
        for rank in range(self.world_size):
            own, workers_own = Pipe()
            settings = pickle.dumps((self.vllm_config, rank, distributed_init_method))
            name = self.vllm_config.parallel_config.worker_name(rank)
            process = EngineProcess(
                target=_worker_process, name=name, args=(settings, workers_own, num_threads, self._directory)
            )
            calls, responses = MessageQueue(own, "CALL", rank), MessageQueue(own, "RESPONSE", rank)
            self.workers.append(WorkerProcHandle(process, rank, calls, responses))
            # A process that is interrupted here leaves a child without its work, which ends with a traceback.
            with deferred_interrupts(), deferred_interrupts(signal.SIGTERM), sigint_blocked():
                process.start()
            workers_own.close()
        self.futures.append(started := FutureWrapper(self, "__init__", None, inf))
        started.result()

    def _broadcast(self, message: bytes) -> None:
        """Send a message to all workers.

        A worker reads it after it has sent its response to the previous call. A large message is sent by threads, so
        that such responses, large themselves perhaps, are received meanwhile.
        """
        if len(message) < _LARGE_MESSAGE or not self.futures:
            for worker in self.workers:
                try:
                    worker.rpc_broadcast_mq.enqueue(message)
                except OSError:
                    self._fail(self._death(worker))
            return
        with ThreadPoolExecutor(len(self.workers)) as pool:
            sent = [pool.submit(worker.rpc_broadcast_mq.enqueue, message) for worker in self.workers]
            while not all(one.done() for one in sent):
                self._receive(self.futures[0], timeout=_SHORT_POLL_INTERVAL)
        for worker, one in zip(self.workers, sent, strict=True):
            if isinstance(one.exception(), OSError):
                self._fail(self._death(worker))

    def _receive_results(self, future: FutureWrapper) -> dict[int, Any]:
        workers = self.workers if future.output_rank is None else [self.workers[future.output_rank]]
        while not all(worker.results for worker in workers):
            self._receive(future)
        return {worker.rank: worker.results.popleft() for worker in workers}

    def _receive(self, future: FutureWrapper, timeout: float = _POLL_INTERVAL) -> None:
        """Receive what has arrived, waiting a moment for it. An error or the death of any worker ends the call."""
        sources: dict[Any, WorkerProcHandle] = {worker.worker_response_mq.connection: worker for worker in self.workers}
        sources |= {worker.process.sentinel: worker for worker in self.workers}
        ready = wait(list(sources), timeout=timeout)
        for source in sorted(ready, key=lambda source: isinstance(source, int)):  # a dead worker's message first
            worker = sources[source]
            try:
                is_error, value = (True, None) if isinstance(source, int) else worker.worker_response_mq.dequeue()
            except (EOFError, OSError):
                is_error, value = True, None
            if is_error:
                self._fail(value or self._death(worker), worker)
            worker.results.append(value)
        if not ready and time.monotonic() > future.deadline:
            self._fail(self._timeout(future.method))

    def _death(self, worker: WorkerProcHandle) -> EngineDeadError:
        worker.process.join(_DEATH_TIMEOUT)
        return EngineDeadError(
            f"The worker of rank {worker.rank} (process {worker.process.pid}) {describe_exit(worker.process)}, and "
            "the engine ends with it. Make a new engine."
        )

    def _timeout(self, method: str) -> EngineDeadError:
        """Return the error for workers that do not respond; a stopped one is the cause."""
        stopped = [worker for worker in self.workers if _is_stopped(worker.process.pid)]
        silent = stopped or [worker for worker in self.workers if not worker.results]
        workers = ", ".join(f"rank {worker.rank} (process {worker.process.pid})" for worker in silent)
        return self._timeout_error(method, workers, "is stopped" if stopped else "does not respond")

    def _fail(self, error: BaseException, sender: WorkerProcHandle | None = None) -> None:
        """End all workers and raise the error, or the death of another worker than its sender, which caused it."""
        others = [worker for worker in self.workers if worker is not sender]
        if not isinstance(error, EngineError):  # perhaps that of a collective operation whose other end is gone
            wait([worker.process.sentinel for worker in others], timeout=_DEATH_TIMEOUT)
            dead = [worker for worker in others if not worker.process.is_alive()]
            error = self._death(dead[0]) if dead else error
        self.abort()
        raise error

    def abort(self) -> None:
        """End the workers at once, which may wait for one that is gone."""
        self.is_failed = True
        self._forget_exit()
        if self._finalizer.detach():
            _end_workers(self.workers, self._directory, _FAILED_END_TIMEOUTS)

    def shutdown(self) -> None:
        """End the workers."""
        self.is_failed = True
        self._finalizer()
        self._forget_exit()

    def _forget_exit(self) -> None:
        atexit.unregister(self._finalizer)
        self._at_exit.cancel()


def _end_workers(workers: list[WorkerProcHandle], directory: str, timeouts: tuple[float, float]) -> None:
    """End the processes: by closing their pipes, then by SIGTERM, then by SIGKILL."""
    for worker in workers:
        worker.rpc_broadcast_mq.connection.close()
    started = [worker.process for worker in workers if worker.process.pid is not None]
    for timeout, end in zip(timeouts, (EngineProcess.terminate, EngineProcess.kill), strict=True):
        if not _wait_for_end(started, timeout):
            for process in started:
                if process.is_alive():
                    end(process)
    for process in started:
        process.join()
    shutil.rmtree(directory, ignore_errors=True)


def _wait_for_end(processes: list[EngineProcess], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    return not any(process.is_alive() for process in processes)


def _is_stopped(pid: int | None) -> bool:
    """Return whether a process is stopped by a signal; False where there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


class WorkerProc:
    """A worker in its process, which serves the executor's calls."""

    def __init__(
        self, vllm_config: VllmConfig, rank: int, distributed_init_method: str, connection: Connection
    ) -> None:
        """Make the worker, join the others, and respond to the executor."""
        self.rank = rank
        self.rpc_broadcast_mq = MessageQueue(connection, "CALL", rank)
        self.worker_response_mq = MessageQueue(connection, "RESPONSE", rank)
        self.worker = WorkerWrapperBase(vllm_config, rank, distributed_init_method)
        self.worker.init_worker()
        self.worker.init_device()
        self.worker_response_mq.enqueue(serialize((False, None)))

    def worker_busy_loop(self) -> None:
        """Serve calls until the executor closes its end of the pipe."""
        while True:
            try:
                method, args, kwargs, output_rank = self.rpc_broadcast_mq.dequeue()
            except (EOFError, OSError):
                return
            response = run_method(self.worker, method, args, kwargs)
            if response[0] or output_rank is None or output_rank == self.rank:
                self.worker_response_mq.enqueue(serialize(response))


def _worker_process(settings: bytes, connection: Connection, num_threads: int, directory: str) -> None:
    """Run a worker; the main function of its process. `directory` is removed if the executor's process dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the executor's process handles Ctrl-C
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, lambda signum, frame: exit_silently())
    end_with_parent(partial(shutil.rmtree, directory, ignore_errors=True))
    import_libraries("torch")
    import torch

    from tracellm.engine.distributed.parallel_state import destroy_distributed_environment

    torch.set_num_threads(num_threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    try:
        vllm_config, rank, distributed_init_method = pickle.loads(settings)
        proc = WorkerProc(vllm_config, rank, distributed_init_method, connection)
    except Exception as error:
        connection.send_bytes(serialize(error_response(error)))
        return
    try:
        proc.worker_busy_loop()
    finally:
        destroy_distributed_environment()
