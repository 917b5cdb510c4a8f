"""The executor with a Ray actor for each worker, on one machine or several.

The actors are placed by a placement group with a CPU, or a GPU, for each. Ranks go from machine to machine, the engine
core's first, so that workers that share layers are together. `collective_rpc` calls a method of every actor, and the
output rank returns the result of a step. RAY_ADDRESS names the cluster; without it, Ray is started on this machine and
ends with the executor.

vLLM: vllm/v1/executor/ray_executor.py::RayDistributedExecutor, and ray_utils.py. Left out: compiled graphs, which move
tensors between stages; here torch.distributed does, as without Ray.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.distributed.message_queue import MessageQueue
from tracellm.engine.executor.distributed_executor import (
    DistributedExecutor,
    FutureWrapper,
    Response,
    error_response,
    run_method,
    serialize,
)
from tracellm.engine.worker.worker_base import WorkerWrapperBase

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig

__all__ = ["RayDistributedExecutor", "RayWorkerHandle", "RayWorkerProc", "RayWorkerWrapper"]

_CONNECT_TIMEOUT = 5.0
"""Seconds to wait for the cluster's address."""
_PLACEMENT_TIMEOUT = 30.0
"""Seconds to wait for the cluster's resources."""
_END_TIMEOUT = 5.0
"""Seconds that workers have to end; after a failure, when some may wait for one that is gone, they are killed."""
_DEATH_TIMEOUT = 2.0
"""Seconds after a worker's error in which the death of another one is taken for its cause."""
_POLL_INTERVAL = 0.5
"""Seconds between checks for signals while waiting for the workers."""
_FORWARDED = ("HF_", "OMP_", "TRACELLM_", "VLLM_")
"""Beginnings of the environment variables that workers get."""


class RayDistributedExecutor(DistributedExecutor):
    """Executor with a Ray actor for each worker."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self.references: deque[list[Any]] = deque()
        """References to the responses of all workers, for each call in `futures`."""
        self.ray = _import_ray()
        self.workers: list[RayWorkerHandle] = []
        self._resources: list[Any] = []
        """The placement group, then the actors."""
        is_own = _initialize_cluster(self.ray, self.world_size)
        self._finalizer = weakref.finalize(self, _end, self.ray, self._resources, is_own, _END_TIMEOUT)
        atexit.register(self._finalizer)  # before Ray's own, which would kill the actors
        with self.aborted_on_error():
            self._start_workers()
            self.collective_rpc("load_model")

    def _start_workers(self) -> None:
        """Start the actors, and wait until all have joined.

        Raises:
            EngineError: the cluster is too small or busy, or a worker's own error.
        """
        import torch

        resource = "GPU" if self.vllm_config.device_config.device.type == "cuda" else "CPU"
        group = self._place(resource)
        actors = [self._make_actor(group, resource, index) for index in range(self.world_size)]
        self._resources += actors
        places = self._get([actor.get_place.remote() for actor in actors])
        here = self.ray.util.get_node_ip_address()
        by_machine = sorted(zip(places, actors, strict=True), key=lambda one: (one[0][0] != here, one[0][0]))
        self.workers = [RayWorkerHandle(actor, rank, *place) for rank, (place, actor) in enumerate(by_machine)]
        is_local = len({worker.address for worker in self.workers}) == 1
        host = "127.0.0.1" if is_local else self.workers[0].address
        port = self._get([self.workers[0].actor.open_store.remote(host)])[0]
        method = f"tcp://{host}:{port}"
        num_threads = max(1, torch.get_num_threads() // self.world_size)
        config = serialize(self.vllm_config)
        self.references.append(
            [self._init_worker(rank, config, method, is_local, num_threads) for rank in range(self.world_size)]
        )
        self.futures.append(started := FutureWrapper(self, "__init__", None, inf))
        started.result()

    def _place(self, resource: str) -> Any:
        """Return a placement group with a bundle for each worker."""
        total = self.ray.cluster_resources().get(resource, 0)
        if total < self.world_size:
            raise EngineError(
                f"The Ray cluster has {total:g} {resource}s, and {self.world_size} workers need one each: lower "
                "`tensor_parallel_size` or `pipeline_parallel_size`, or add machines."
            )
        group = self.ray.util.placement_group([{resource: 1}] * self.world_size, strategy="PACK")
        self._resources.append(group)
        if not group.wait(_PLACEMENT_TIMEOUT):
            available = self.ray.available_resources().get(resource, 0)
            raise EngineError(
                f"The Ray cluster has {available:g} of {total:g} {resource}s free, and {self.world_size} workers need "
                f"one each: nothing was freed in {_PLACEMENT_TIMEOUT:g} s."
            )
        return group

    def _make_actor(self, group: Any, resource: str, index: int) -> Any:
        """Return a new actor in a bundle of the placement group."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        options = {"num_gpus": 1, "num_cpus": 0} if resource == "GPU" else {"num_cpus": 1}
        variables = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
        variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        actor_class = self.ray.remote(**options)(RayWorkerWrapper)
        return actor_class.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            runtime_env={"env_vars": variables},
        ).remote()

    def _init_worker(self, rank: int, *args: object) -> Any:
        """Make the worker in an actor."""
        return self.workers[rank].actor.init_worker.remote(rank, *args)

    def _broadcast(self, message: bytes) -> None:
        for worker in self.workers:
            worker.rpc_broadcast_mq.enqueue(message)
        self.references.append([worker.rpc_broadcast_mq.connection.reference for worker in self.workers])

    def _receive_results(self, future: FutureWrapper) -> dict[int, Any]:
        """Wait for all workers; an error or the death of any ends the call."""
        pending = {reference: rank for rank, reference in enumerate(self.references.popleft())}
        results: dict[int, Any] = {}
        while pending:
            ready, _ = self.ray.wait(list(pending), num_returns=1, timeout=_POLL_INTERVAL)
            for reference in ready:
                rank = pending.pop(reference)
                is_error, results[rank] = self._response(rank, reference)
                if is_error:
                    self._fail(results[rank], pending)
            if not ready and time.monotonic() > future.deadline:
                silent = ", ".join(str(self.workers[rank]) for rank in sorted(pending.values()))
                self._fail(self._timeout_error(future.method, silent, "does not respond"), {})
        return dict(sorted(results.items()))

    def _response(self, rank: int, reference: Any) -> Response:
        worker = self.workers[rank]
        try:
            data: bytes | None = self.ray.get(reference)
        except self.ray.exceptions.RayActorError:
            return True, EngineDeadError(
                f"The worker of {worker} died, or its machine is out of reach, and the engine ends with it. Make a new "
                "engine."
            )
        except self.ray.exceptions.RayError as error:
            return error_response(error)
        if data is None:
            return False, None
        response: Response = worker.worker_response_mq.deserialize(data)
        return response

    def _fail(self, error: BaseException, pending: dict[Any, int]) -> None:
        """End all workers and raise the error, or the death of a worker that caused it."""
        if not isinstance(error, EngineError) and pending:  # perhaps a collective operation whose other end is gone
            ready, _ = self.ray.wait(list(pending), num_returns=len(pending), timeout=_DEATH_TIMEOUT)
            found = [self._response(pending[reference], reference) for reference in ready]
            error = next((value for _, value in found if isinstance(value, EngineDeadError)), error)
        self.abort()
        raise error

    def _get(self, references: list[Any]) -> list[Any]:
        """Return the actors' results during start-up."""
        try:
            results: list[Any] = self.ray.get(references)
        except self.ray.exceptions.RayError as error:
            raise EngineError(f"A Ray actor could not be started: {error}") from error
        return results

    def abort(self) -> None:
        """End the workers at once, which may wait for one that is gone, and Ray if it was started for them."""
        self.is_failed = True
        atexit.unregister(self._finalizer)
        if (ending := self._finalizer.detach()) is not None:
            ray, resources, is_own, _ = ending[2]
            _end(ray, resources, is_own, 0)

    def shutdown(self) -> None:
        """End the workers, and Ray if it was started for them."""
        self.is_failed = True
        self._finalizer()
        atexit.unregister(self._finalizer)


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
        import ray.util
    except ImportError as error:
        raise EngineError("`distributed_executor_backend='ray'` needs Ray: pip install 'tracellm[ray]'.") from error
    return ray


def _initialize_cluster(ray: Any, world_size: int) -> bool:
    """Connect to the cluster at RAY_ADDRESS, or start Ray here; return whether it was started.

    Raises:
        EngineError: there is no cluster at that address.
    """
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address := os.environ.get("RAY_ADDRESS"):
        try:
            host, _, port = address.partition(":")
            if port.isdecimal():  # Ray itself would try for minutes
                socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT).close()
            with _sigterm_handler_kept():
                ray.init(address=address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineError(
                f"There is no Ray cluster at RAY_ADDRESS={address} ({error}): correct the variable, start the cluster "
                "(`ray start --head`), or unset it to use this machine."
            ) from error
        return False
    num_cpus = max(world_size, os.cpu_count() or 1)
    local = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
    for is_last in (False, False, True):
        try:
            with _sigterm_handler_kept():
                ray.init(num_cpus=num_cpus, **local, **quiet)
            break
        except BaseException as error:
            ray.shutdown()
            if is_last or "timed out during startup" not in str(error):  # after 30 seconds, too few on a busy machine
                raise
    return True


@contextmanager
def _sigterm_handler_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM after the block; Ray's own prints the stack of this process.

    In place of the default, Ray's handler in Python stays, which ends the program as `sys.exit` does, and Ray with it.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # in another one it cannot be set
            if handler is signal.SIG_DFL:
                handler = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, handler)


def _end(ray: Any, resources: list[Any], is_own: bool, timeout: float) -> None:
    """End the actors, remove their placement group, and end Ray if it was started for them."""
    if not ray.is_initialized():
        return
    groups, actors = resources[:1], resources[1:]
    if actors and timeout:
        ray.wait([actor.shutdown.remote() for actor in actors], num_returns=len(actors), timeout=timeout)
    for actor in actors:
        ray.kill(actor)
    for group in groups:
        ray.util.remove_placement_group(group)
    if is_own:
        ray.shutdown()


class RayWorkerHandle:
    """The executor's handle of one worker.

    Attributes:
        actor: Ray's handle.
        rank: the worker's rank.
        address: IP address of its machine.
        pid: its process id.
        rpc_broadcast_mq: calls to the worker.
        worker_response_mq: its responses.
    """

    def __init__(self, actor: Any, rank: int, address: str, pid: int) -> None:
        self.actor = actor
        self.rank = rank
        self.address = address
        self.pid = pid
        self.rpc_broadcast_mq = MessageQueue(_ActorCalls(actor), "CALL", rank, "ray")
        self.worker_response_mq = MessageQueue(_Kept(), "RESPONSE", rank, "ray")

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.address})"


class RayWorkerWrapper:
    """The actor. Ray copies the methods of this class, so its work is in `RayWorkerProc`, which its process imports."""

    def get_place(self) -> tuple[str, int]:
        """Return the address of the machine, and the process id."""
        from ray.util import get_node_ip_address

        return get_node_ip_address(), os.getpid()

    def open_store(self, host: str) -> int:
        """Open the store at which all workers meet, and return its port, which nobody else can take from now on."""
        self.store = import_module("torch.distributed").TCPStore(host, 0, is_master=True, wait_for_workers=False)
        port: int = self.store.port
        return port

    def init_worker(self, rank: int, *args: Any) -> bytes:
        """See `RayWorkerProc.init_worker`."""
        self.proc: RayWorkerProc = import_module("tracellm.engine.executor.ray_executor").RayWorkerProc(rank)
        return self.proc.init_worker(*args)

    def execute_method(self, message: bytes) -> bytes | None:
        """See `RayWorkerProc.execute_method`."""
        return self.proc.execute_method(message)

    def shutdown(self) -> None:
        """See `RayWorkerProc.shutdown`."""
        self.proc.shutdown()


class RayWorkerProc:
    """A worker in an actor's process, which serves the executor's calls."""

    worker: WorkerWrapperBase

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.rpc_broadcast_mq = MessageQueue(_Kept(), "CALL", rank, "ray")
        self.worker_response_mq = MessageQueue(_Kept(), "RESPONSE", rank, "ray")

    def init_worker(
        self, vllm_config: bytes, distributed_init_method: str, is_local: bool, num_threads: int, *_: object
    ) -> bytes:
        """Make the worker and join the others; `is_local` is True if all are on one machine."""
        response: Response = (False, None)
        import_libraries("torch")
        import torch

        torch.set_num_threads(num_threads)
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # PyTorch's name for a store that is open already
        if is_local:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        try:
            config: VllmConfig = pickle.loads(vllm_config)
            self.worker = WorkerWrapperBase(config, self.rank, distributed_init_method, local_rank=0)
            self.worker.init_worker()
            self.worker.init_device()
        except Exception as error:
            response = error_response(error)
        return self._respond(response)

    def execute_method(self, message: bytes) -> bytes | None:
        """Call a method of the worker; only the output rank returns the result."""
        method, args, kwargs, output_rank = self.rpc_broadcast_mq.deserialize(message)
        response = run_method(self.worker, method, args, kwargs)
        if response[0] or output_rank is None or output_rank == self.rank:
            return self._respond(response)
        return None

    def shutdown(self) -> None:
        """Leave the groups of workers."""
        from tracellm.engine.distributed.parallel_state import destroy_distributed_environment

        destroy_distributed_environment()

    def _respond(self, response: Response) -> bytes:
        self.worker_response_mq.enqueue(serialize(response))
        data: bytes = self.worker_response_mq.connection.data
        return data


class _Kept:
    """Keeps a message that a method returns."""

    data = b""

    def send_bytes(self, data: bytes) -> None:
        self.data = data


class _ActorCalls:
    """Sends messages to an actor, and keeps a reference to the last response."""

    reference: Any = None

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def send_bytes(self, data: bytes) -> None:
        self.reference = self.actor.execute_method.remote(data)
