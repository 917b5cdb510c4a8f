"""Stride scheduling over tenants, each with a heap ordered by a deadline that grows with the request's size."""

import heapq
from itertools import count


def seconds(request):
    """Estimate the time on the engine, from the formula of a step."""
    chunks = -(-request.num_prompt_tokens // 256)
    return 0.00004 * request.num_prompt_tokens + 0.0048 * (chunks + request.max_tokens) / 8


class PolicyRequestQueue:
    def __init__(self):
        self.heaps = {}
        self.passes = {}
        self.front = []
        self.counter = count()

    def add_request(self, request):
        tenant = request.client_index
        heap = self.heaps.setdefault(tenant, [])
        if not heap:
            busy = [self.passes[one] for one, other in self.heaps.items() if other]
            self.passes[tenant] = max(self.passes.get(tenant, 0), min(busy, default=0))
        deadline = request.arrival_time + 30 * seconds(request) + 1.5 * request.priority
        heapq.heappush(heap, (deadline, next(self.counter), request))

    def pop_request(self):
        request = self.peek_request()
        if self.front:
            return self.front.pop()
        tenant = request.client_index
        heapq.heappop(self.heaps[tenant])
        self.passes[tenant] += seconds(request)
        return request

    def peek_request(self):
        if self.front:
            return self.front[-1]
        busy = [tenant for tenant, heap in self.heaps.items() if heap]
        if not busy:
            raise IndexError("empty")
        tenant = min(busy, key=lambda one: (self.passes[one], self.heaps[one][0][:2]))
        return self.heaps[tenant][0][2]

    def prepend_request(self, request):
        self.front.append(request)

    def prepend_requests(self, requests):
        for request in reversed(list(requests)):
            self.front.append(request)

    def remove_requests(self, requests):
        gone = {id(request) for request in requests}
        self.front = [one for one in self.front if id(one) not in gone]
        for tenant, heap in self.heaps.items():
            self.heaps[tenant] = [entry for entry in heap if id(entry[2]) not in gone]
            heapq.heapify(self.heaps[tenant])

    def __len__(self):
        return len(self.front) + sum(map(len, self.heaps.values()))

    def __iter__(self):
        other = type(self)()
        other.front = list(self.front)
        other.heaps = {tenant: list(heap) for tenant, heap in self.heaps.items()}
        other.passes = dict(self.passes)
        return iter([other.pop_request() for _ in range(len(other))])
