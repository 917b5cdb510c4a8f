"""Deficit round robin over tenants; each has levels by size and priority, and a request rises with every 40 arrivals."""

from copy import copy

QUANTUM = 400


def size(request):
    return request.num_prompt_tokens + 15 * request.max_tokens


class PolicyRequestQueue:
    def __init__(self):
        self.put_back = []
        self.lines = {}  # tenant -> entries (level, number of its arrival, request), in the order of the rounds
        self.credit = {}
        self.arrivals = 0

    def add_request(self, request):
        self.arrivals += 1
        level = size(request).bit_length() + 8 * request.priority
        entries = self.lines.setdefault(request.client_index, [])
        if not entries:
            self.credit[request.client_index] = 0
        entries.append((level, self.arrivals, request))

    def pop_request(self):
        if self.put_back:
            return self.put_back.pop(0)
        tenant = turn(self)
        entry = best(self.lines[tenant])
        self.credit[tenant] -= size(entry[2])
        self.lines[tenant] = [one for one in self.lines[tenant] if one is not entry]
        return entry[2]

    def peek_request(self):
        if self.put_back:
            return self.put_back[0]
        after = copy(self)
        after.lines, after.credit = dict(self.lines), dict(self.credit)
        return best(after.lines[turn(after)])[2]

    def prepend_request(self, request):
        self.put_back = [request, *self.put_back]

    def prepend_requests(self, requests):
        self.put_back = [*requests, *self.put_back]

    def remove_requests(self, requests):
        for request in requests:
            self.put_back = [one for one in self.put_back if one is not request]
            for tenant in self.lines:
                self.lines[tenant] = [one for one in self.lines[tenant] if one[2] is not request]

    def __len__(self):
        return len(self.put_back) + sum(len(entries) for entries in self.lines.values())

    def __iter__(self):
        left = copy(self)
        left.put_back, left.lines, left.credit = list(self.put_back), dict(self.lines), dict(self.credit)
        while len(left):
            yield left.pop_request()


def best(entries):
    """Return the entry of the lowest level; an older one has risen by a level for every 40 arrivals."""
    return min(entries, key=lambda entry: (entry[0] + entry[1] // 40, entry[0], entry[1]))


def turn(queue):
    """Return the tenant whose turn it is, and move those that must save on to the end of the round."""
    if not any(queue.lines.values()):
        raise IndexError("no request waits")
    while True:
        tenant = next(iter(queue.lines))
        entries = queue.lines[tenant]
        if entries and queue.credit[tenant] >= size(best(entries)[2]):
            return tenant
        queue.lines[tenant] = queue.lines.pop(tenant)
        if entries:
            queue.credit[tenant] += QUANTUM
