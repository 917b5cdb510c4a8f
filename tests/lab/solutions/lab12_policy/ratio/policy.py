"""Highest response ratio next. The queue's clock is the latest arrival; tenants count by what they were given."""


def work(request):
    return 0.00004 * request.num_prompt_tokens + 0.0007 * request.max_tokens


def class_of(request, now):
    """Return the priority, one less for each second of waiting."""
    return max(0, request.priority - int(now - request.arrival_time))


class PolicyRequestQueue:
    def __init__(self):
        self.now = 0.0
        self.list = []
        self.first = []
        self.given = {}

    def add_request(self, request):
        self.now = max(self.now, request.arrival_time)
        mine = request.client_index
        floor = min([self.given[one.client_index] for one in self.list] or [0.0])
        self.given[mine] = max(self.given.get(mine, 0.0), floor)
        self.list.append(request)

    def pop_request(self):
        order = list(self)
        request = order[0]
        if request in self.first:
            self.first.remove(request)
        else:
            self.list.remove(request)
            self.given[request.client_index] += work(request)
        return request

    def peek_request(self):
        return list(self)[0]

    def prepend_request(self, request):
        self.first.insert(0, request)

    def prepend_requests(self, requests):
        self.first = list(requests) + self.first

    def remove_requests(self, requests):
        for request in list(requests):
            for place in (self.first, self.list):
                if request in place:
                    place.remove(request)

    def __len__(self):
        return len(self.list) + len(self.first)

    def __iter__(self):
        given, left, order = dict(self.given), list(self.list), list(self.first)

        def urgency(request):
            ratio = 1 + (self.now - request.arrival_time) / work(request)
            return given[request.client_index], class_of(request, self.now), -ratio, request.arrival_time

        while left:
            request = min(left, key=urgency)
            left.remove(request)
            given[request.client_index] += work(request)
            order.append(request)
        return iter(order)
