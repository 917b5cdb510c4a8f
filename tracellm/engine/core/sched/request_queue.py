"""The queue of waiting requests, ordered by the scheduling policy.

The scheduler takes requests from its front, and puts back preempted and skipped ones.

vLLM: vllm/v1/core/sched/request_queue.py.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum

from tracellm.engine.core.request import Request

__all__ = ["FCFSRequestQueue", "PriorityRequestQueue", "RequestQueue", "SchedulingPolicy", "create_request_queue"]


class SchedulingPolicy(StrEnum):
    """Order of the waiting requests. vLLM: vllm/v1/core/sched/request_queue.py::SchedulingPolicy."""

    FCFS = "fcfs"
    """First come, first served."""
    PRIORITY = "priority"
    """The smallest `priority` first, then the earliest arrival."""


class RequestQueue(ABC):
    """Interface of both queues. vLLM: vllm/v1/core/sched/request_queue.py::RequestQueue."""

    @abstractmethod
    def add_request(self, request: Request) -> None:
        """Add a new request."""

    @abstractmethod
    def pop_request(self) -> Request:
        """Remove and return the first request. Raises IndexError if the queue is empty."""

    @abstractmethod
    def peek_request(self) -> Request:
        """Return the first request without removing it. Raises IndexError if the queue is empty."""

    @abstractmethod
    def prepend_request(self, request: Request) -> None:
        """Put back a request."""

    @abstractmethod
    def prepend_requests(self, requests: "RequestQueue") -> None:
        """Put back several requests, in their order."""

    @abstractmethod
    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove these requests, wherever they are in the queue."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Request]: ...


class FCFSRequestQueue(RequestQueue):
    """First come, first served. A request that is put back goes to the front.

    vLLM: vllm/v1/core/sched/request_queue.py::FCFSRequestQueue (there a subclass of deque).
    """

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def add_request(self, request: Request) -> None:
        """Append the request."""
        self._requests.append(request)

    def pop_request(self) -> Request:
        """Remove and return the first request."""
        return self._requests.popleft()

    def peek_request(self) -> Request:
        """Return the first request."""
        return self._requests[0]

    def prepend_request(self, request: Request) -> None:
        """Put the request at the front."""
        self._requests.appendleft(request)

    def prepend_requests(self, requests: RequestQueue) -> None:
        """Put the requests at the front, in their order."""
        self._requests.extendleft(reversed(list(requests)))

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove these requests."""
        removed = set(requests)
        self._requests = deque(request for request in self._requests if request not in removed)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class PriorityRequestQueue(RequestQueue):
    """A heap ordered by priority and arrival time. Putting a request back is the same as adding it.

    vLLM: vllm/v1/core/sched/request_queue.py::PriorityRequestQueue.
    """

    def __init__(self) -> None:
        self._heap: list[Request] = []

    def add_request(self, request: Request) -> None:
        """Insert the request by its priority."""
        heapq.heappush(self._heap, request)

    def pop_request(self) -> Request:
        """Remove and return the most urgent request."""
        return heapq.heappop(self._heap)

    def peek_request(self) -> Request:
        """Return the most urgent request."""
        return self._heap[0]

    def prepend_request(self, request: Request) -> None:
        """Insert the request by its priority."""
        self.add_request(request)

    def prepend_requests(self, requests: RequestQueue) -> None:
        """Insert each request by its priority."""
        for request in requests:
            self.add_request(request)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove these requests."""
        removed = set(requests)
        self._heap = [request for request in self._heap if request not in removed]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._heap))


def create_request_queue(policy: SchedulingPolicy) -> RequestQueue:
    """Create an empty queue for this policy."""
    return PriorityRequestQueue() if policy is SchedulingPolicy.PRIORITY else FCFSRequestQueue()
