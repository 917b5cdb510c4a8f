"""Messages between the executor and a worker, over a pipe: calls in one direction, responses in the other.

In each step: `MultiprocExecutor.collective_rpc` -> `enqueue` for each worker; `WorkerProc.worker_busy_loop` ->
`dequeue`; the output rank's response comes back the same way.

vLLM: vllm/distributed/device_communicators/shm_broadcast.py::MessageQueue, a ring in shared memory that one
process writes and all workers read. A pipe copies the bytes once for each worker, and its end shows
the death of the other process.
"""

import pickle
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["MessageQueue", "serialize"]


def serialize(obj: Any) -> bytes:
    """Return the bytes of a message."""
    return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)


class MessageQueue:
    """One end of a queue; the other end has the same kind and rank.

    Attributes:
        connection: end of the pipe.
        kind: CALL or RESPONSE.
        rank: rank of the worker.
        num_messages: messages so far.
    """

    def __init__(self, connection: Connection, kind: str, rank: int) -> None:
        self.connection = connection
        self.kind = kind
        self.rank = rank
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
        data = self.connection.recv_bytes()
        self.num_messages += 1
        return self.deserialize(data)

    def deserialize(self, data: bytes) -> Any:
        """Return the object of a message's bytes."""
        return pickle.loads(data)
