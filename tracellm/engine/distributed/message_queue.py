"""Messages between the executor and a worker: calls in one direction, responses in the other.

In each step: `MultiprocExecutor.collective_rpc` -> `enqueue` for each worker; `WorkerProc.worker_busy_loop` ->
`dequeue`; the output rank's response comes back the same way.

vLLM: vllm/distributed/device_communicators/shm_broadcast.py::MessageQueue, a ring in shared memory that one
process writes and all workers read. Here they go over a pipe, which copies the bytes once for each worker and whose
end shows the death of the other process, or Ray carries them (executor/ray_executor.py).
"""

import pickle
from typing import Any

__all__ = ["MessageQueue"]


class MessageQueue:
    """One end of a queue; the other end has the same kind and rank.

    Attributes:
        connection: end of the pipe (`send_bytes`, `recv_bytes`), or what takes its place.
        kind: CALL or RESPONSE.
        rank: rank of the worker.
        system: `pipe` or `ray`.
        num_messages: messages so far.
    """

    def __init__(self, connection: Any, kind: str, rank: int, system: str = "pipe") -> None:
        self.connection = connection
        self.kind = kind
        self.rank = rank
        self.system = system
        self.num_messages = 0

    def enqueue(self, data: bytes) -> None:
        """Send the bytes of a message.

        Raises:
            OSError: the other end is closed.
        """
        self.num_messages += 1
        self.connection.send_bytes(data)

    def dequeue(self) -> Any:
        """Wait for the next message and return it.

        Raises:
            EOFError: the other end is closed, and there is no message left.
        """
        return self.deserialize(self.connection.recv_bytes())

    def deserialize(self, data: bytes) -> Any:
        """Return the object of a message that has arrived."""
        self.num_messages += 1
        return pickle.loads(data)
