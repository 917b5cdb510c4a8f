"""Tests of the two waiting queues."""

import pytest

from tests.engine.sched.harness import make_request
from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.request_queue import (
    FCFSRequestQueue,
    PriorityRequestQueue,
    RequestQueue,
    SchedulingPolicy,
    create_request_queue,
)


def ids(queue: RequestQueue) -> str:
    """Return the ids in the queue's order."""
    return "".join(request.request_id for request in queue)


def fill(queue: RequestQueue, *requests: Request) -> RequestQueue:
    """Add these requests to the queue."""
    for request in requests:
        queue.add_request(request)
    return queue


def test_first_come_first_served():
    """Requests leave in order of arrival, except that one put back is first again."""
    queue = fill(FCFSRequestQueue(), *(make_request(i, 1) for i in "abc"))
    first = queue.pop_request()
    assert (first.request_id, queue.peek_request().request_id, len(queue)) == ("a", "b", 2)
    queue.prepend_request(first)
    assert ids(queue) == "abc"
    queue.prepend_requests(fill(FCFSRequestQueue(), make_request("x", 1), make_request("y", 1)))
    assert ids(queue) == "xyabc"


def test_priority_then_arrival_then_id():
    """The smallest priority leaves first, then the earliest arrival, then the smaller id."""
    requests = [
        make_request("a", 1, priority=2, arrival_time=0.0),
        make_request("b", 1, priority=1, arrival_time=5.0),
        make_request("d", 1, priority=1, arrival_time=3.0),
        make_request("c", 1, priority=1, arrival_time=3.0),
    ]
    queue = fill(PriorityRequestQueue(), *requests)
    assert ids(queue) == "cdba"
    assert queue.peek_request().request_id == "c"
    queue.prepend_request(make_request("z", 1, priority=9))
    queue.prepend_requests(fill(PriorityRequestQueue(), make_request("e", 1, priority=0)))
    assert "".join(queue.pop_request().request_id for _ in range(len(queue))) == "ecdbaz"


@pytest.mark.parametrize("queue", [FCFSRequestQueue(), PriorityRequestQueue()])
def test_requests_are_removed_from_anywhere(queue):
    """Removing requests keeps the order of the others; an empty queue is false and has no first request."""
    requests = [make_request(i, 1, arrival_time=float(n)) for n, i in enumerate("abcd")]
    fill(queue, *requests)
    queue.remove_requests([requests[2], requests[0]])
    assert ids(queue) == "bd"
    queue.remove_requests(requests)
    assert not queue
    with pytest.raises(IndexError):
        queue.peek_request()


def test_the_policy_chooses_the_queue():
    """The policies `fcfs` and `priority` choose the queue."""
    assert isinstance(create_request_queue(SchedulingPolicy("fcfs")), FCFSRequestQueue)
    assert isinstance(create_request_queue(SchedulingPolicy("priority")), PriorityRequestQueue)
