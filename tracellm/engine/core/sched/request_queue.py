"""The queue of waiting requests, in the order of the scheduling policy.

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
    """Who comes first. vLLM: vllm/v1/core/sched/request_queue.py::SchedulingPolicy."""

    FCFS = "fcfs"
    """First come, first served."""
    PRIORITY = "priority"
    """The smallest `priority` first, then the earliest arrival."""


class RequestQueue(ABC):
    """What the scheduler asks of a queue. vLLM: vllm/v1/core/sched/request_queue.py::RequestQueue."""

    @abstractmethod
    def add_request(self, request: Request) -> None:
        """Put in a request that has just arrived."""

    @abstractmethod
    def pop_request(self) -> Request:
        """Take out the first request. Raises IndexError when there is none."""

    @abstractmethod
    def peek_request(self) -> Request:
        """The first request, left in. Raises IndexError when there is none."""

    @abstractmethod
    def prepend_request(self, request: Request) -> None:
        """Put back a request that had been taken out."""

    @abstractmethod
    def prepend_requests(self, requests: "RequestQueue") -> None:
        """Put back several."""

    @abstractmethod
    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Take out these, wherever they are."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Request]: ...


class FCFSRequestQueue(RequestQueue):
    """First come, first served; what is put back goes to the front.

    vLLM: vllm/v1/core/sched/request_queue.py::FCFSRequestQueue (there a subclass of deque).
    """

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def add_request(self, request: Request) -> None:
        """Put it at the end."""
        self._requests.append(request)

    def pop_request(self) -> Request:
        """Take out the first request."""
        return self._requests.popleft()

    def peek_request(self) -> Request:
        """The first request, left in."""
        return self._requests[0]

    def prepend_request(self, request: Request) -> None:
        """Put it at the front."""
        self._requests.appendleft(request)

    def prepend_requests(self, requests: RequestQueue) -> None:
        """Put them at the front, in their order."""
        self._requests.extendleft(reversed(list(requests)))

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Take out these, wherever they are."""
        unwanted = set(requests)
        self._requests = deque(request for request in self._requests if request not in unwanted)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class PriorityRequestQueue(RequestQueue):
    """A heap by (priority, arrival time); putting a request back is adding it.

    vLLM: vllm/v1/core/sched/request_queue.py::PriorityRequestQueue.
    """

    def __init__(self) -> None:
        self._heap: list[Request] = []

    def add_request(self, request: Request) -> None:
        """Put it where its priority belongs."""
        heapq.heappush(self._heap, request)

    def pop_request(self) -> Request:
        """Take out the most urgent request."""
        return heapq.heappop(self._heap)

    def peek_request(self) -> Request:
        """The most urgent request, left in."""
        return self._heap[0]

    def prepend_request(self, request: Request) -> None:
        """Put it where its priority belongs."""
        self.add_request(request)

    def prepend_requests(self, requests: RequestQueue) -> None:
        """Put each where its priority belongs."""
        for request in requests:
            self.add_request(request)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Take out these, wherever they are."""
        unwanted = set(requests)
        self._heap = [request for request in self._heap if request not in unwanted]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._heap))


def create_request_queue(policy: SchedulingPolicy) -> RequestQueue:
    """An empty queue for this policy."""
    return PriorityRequestQueue() if policy is SchedulingPolicy.PRIORITY else FCFSRequestQueue()
