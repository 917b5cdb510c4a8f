"""The queue of waiting requests under a policy of your own.

The engine's scheduler takes requests from the front of this queue whenever a step has room, and puts back those that it
preempts. So the queue decides who waits for whom; how many requests run, and with how many tokens, stays with the
scheduler. The interface is `RequestQueue` in tracellm/engine/core/sched/request_queue.py, where vLLM has two policies.

A policy may use what is known when a request arrives, and what the queue itself has seen since:

    request.arrival_time        seconds on the run's clock
    request.num_prompt_tokens   length of the prompt
    request.max_tokens          most tokens of the output; its real length is not known before it ends
    request.priority            0 is the most urgent
    request.client_index        the tenant
"""

from collections.abc import Iterable, Iterator

from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.request_queue import RequestQueue

__all__ = ["PolicyRequestQueue"]


class PolicyRequestQueue(RequestQueue):
    """Waiting requests in the order in which they should start."""

    def __init__(self) -> None:
        """Make an empty queue."""
        self._returned: list[Request] = []
        """Requests that were put back; they go first."""
        self._waiting: list[Request] = []
        self._served: dict[int, float] = {}
        """Cost of the started requests of each tenant."""

    def add_request(self, request: Request) -> None:
        """Add a request that has just arrived."""
        tenants = {one.client_index for one in self._waiting}
        if request.client_index not in tenants:  # a tenant has no claim to the time in which it asked for nothing
            least = min((self._served[tenant] for tenant in tenants), default=0.0)
            self._served[request.client_index] = max(self._served.get(request.client_index, 0.0), least)
        self._waiting.append(request)

    def pop_request(self) -> Request:
        """Remove and return the first request. Raises IndexError if the queue is empty."""
        first = self.peek_request()
        if self._returned:
            return self._returned.pop(0)
        self._waiting.remove(first)
        self._served[first.client_index] += self._cost(first)
        return first

    def peek_request(self) -> Request:
        """Return the request that `pop_request` would return now. Raises IndexError if the queue is empty."""
        if self._returned:
            return self._returned[0]
        if not self._waiting:
            raise IndexError("the queue is empty")
        return min(self._waiting, key=self._rank)

    def prepend_request(self, request: Request) -> None:
        """Put back a request that was started, and preempted; it has some of its tokens."""
        self._returned.insert(0, request)

    def prepend_requests(self, requests: RequestQueue) -> None:
        """Put back several requests, in their order."""
        self._returned[:0] = requests

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove these very requests, wherever they are in the queue; others may be equal to them."""
        removed = set(requests)
        self._returned = [request for request in self._returned if request not in removed]
        self._waiting = [request for request in self._waiting if request not in removed]

    def __len__(self) -> int:
        """Return the number of requests in the queue."""
        return len(self._returned) + len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        """Iterate in the order in which `pop_request` would return the requests, and change nothing."""
        copy = PolicyRequestQueue()
        copy._returned, copy._waiting, copy._served = self._returned[:], self._waiting[:], self._served.copy()
        while copy:
            yield copy.pop_request()

    def _cost(self, request: Request) -> float:
        """Return about how long a request keeps the engine busy, in prompt tokens."""
        return request.num_prompt_tokens + 16 * request.max_tokens

    def _rank(self, request: Request) -> tuple[float, float]:
        """Return the least served tenant first; of its requests the cheap, urgent and old ones."""
        age = request.arrival_time + 0.001 * self._cost(request) + request.priority
        return self._served[request.client_index], age
