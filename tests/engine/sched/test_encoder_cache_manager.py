"""Tests of the encoder cache: its space, the requests that need an entry, and eviction."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.sched.harness import make_config, make_request
from tracellm.engine.config.errors import EngineError
from tracellm.engine.core.encoder_cache_manager import EncoderCacheManager, compute_encoder_budget
from tracellm.engine.core.request import Request

SIZES = {"a": 1, "b": 3, "c": 4, "d": 6, "e": 8}
LARGEST = max(SIZES.values())


def request_of(request_id: str, identifiers: list[str]) -> Request:
    """Make a request with these items, one after the other."""
    items, offset = [], 0
    for identifier in identifiers:
        items.append((identifier, offset, SIZES[identifier]))
        offset += SIZES[identifier]
    return make_request(request_id, offset + 1, items=items)


def put(manager: EncoderCacheManager, request: Request, input_id: int = 0) -> bool:
    """Cache an item for a request, as the scheduler does; return whether there was room."""
    if manager.check_and_update_cache(request, input_id):
        return True
    if not manager.can_allocate(request, input_id, LARGEST, 0):
        return False
    manager.allocate(request, input_id)
    return True


def test_equal_items_share_an_entry():
    """An item that another request has brought is cached, and takes no more space."""
    manager = EncoderCacheManager(10)
    one, other = request_of("1", ["d"]), request_of("2", ["d", "d"])
    assert not manager.check_and_update_cache(one, 0)
    assert put(manager, one)
    assert manager.check_and_update_cache(other, 1)
    assert (manager.num_free_slots, manager.num_freeable_slots) == (4, 4)
    assert manager.get_cached_input_ids(other) == {0, 1}
    manager.free(one)
    assert manager.num_freeable_slots == 4
    manager.free(other)
    assert (manager.num_free_slots, manager.num_freeable_slots) == (4, 10)


def test_unneeded_entries_are_evicted_only_when_their_space_is_needed():
    """The entry that has been unneeded the longest goes first; the workers learn of it once."""
    manager = EncoderCacheManager(10)
    requests = {name: request_of(name, [name]) for name in SIZES}
    for name in "bc":
        assert put(manager, requests[name])
    manager.free(requests["c"])
    manager.free(requests["b"])
    assert manager.get_freed_mm_hashes() == []
    assert put(manager, requests["d"])
    assert manager.get_freed_mm_hashes() == ["c"]
    assert manager.get_freed_mm_hashes() == []
    assert manager.check_and_update_cache(requests["b"], 0)
    assert not put(manager, requests["c"])


def test_items_that_are_not_allocated_so_far_count():
    """The space of a request's earlier items is not given to its later ones."""
    manager = EncoderCacheManager(10)
    request = request_of("1", ["d", "c", "b"])
    assert manager.can_allocate(request, 1, encoder_compute_budget=99, num_tokens_to_schedule=6)
    assert not manager.can_allocate(request, 2, encoder_compute_budget=99, num_tokens_to_schedule=10)
    assert not manager.can_allocate(request, 0, encoder_compute_budget=5, num_tokens_to_schedule=0)


def test_undoing_an_allocation_forgets_what_was_never_encoded():
    """An undone entry is neither found nor reported as evicted, unless another request needs it."""
    manager = EncoderCacheManager(10)
    one, other = request_of("1", ["d"]), request_of("2", ["d"])
    assert put(manager, one)
    assert manager.undo_allocate(one, 0)
    assert not manager.check_and_update_cache(other, 0)
    assert manager.get_freed_mm_hashes() == []
    assert manager.num_free_slots == 10
    assert put(manager, one)
    assert put(manager, other)
    assert not manager.undo_allocate(one, 0)
    assert manager.cached == {"d": {"2"}}


def test_all_entries_can_be_evicted():
    """After a reset nothing is cached, and the workers drop what they have."""
    manager = EncoderCacheManager(10)
    for name in "bc":
        put(manager, request_of(name, [name]))
        manager.free(request_of(name, [name]))
    manager.evict_all()
    assert (manager.cached, manager.num_free_slots, manager.num_freeable_slots) == ({}, 10, 10)
    assert manager.get_freed_mm_hashes() == ["b", "c"]


@pytest.mark.parametrize(
    ("largest", "encoder_tokens", "cache_size", "expected"),
    [(0, 64, 64, (0, 0)), (24, None, None, (64, 64)), (24, 8, 100, (24, 100)), (100, None, None, (100, 100))],
)
def test_both_budgets_have_room_for_the_largest_item(largest, encoder_tokens, cache_size, expected):
    """Both are `max_num_batched_tokens`, or the tokens of the largest item; a text model has none."""
    config = make_config(
        max_num_batched_tokens=64,
        max_tokens_per_mm_item=largest,
        max_num_encoder_input_tokens=encoder_tokens,
        encoder_cache_size=cache_size,
    )
    assert compute_encoder_budget(config.model_config, config.scheduler_config) == expected


def test_an_item_that_must_be_whole_must_fit_into_a_step():
    """`disable_chunked_mm_input` is refused if the largest item does not fit into a step."""
    config = make_config(max_num_batched_tokens=64, max_tokens_per_mm_item=65, disable_chunked_mm_input=True)
    with pytest.raises(EngineError, match=r"`max_num_batched_tokens` \(64\) must be at least 65"):
        compute_encoder_budget(config.model_config, config.scheduler_config)


class EncoderCacheMachine(RuleBasedStateMachine):
    """State machine that compares the manager with lists of the entries, and of those that the workers have."""

    @initialize(size=st.integers(LARGEST, 20))
    def start(self, size):
        """Make an empty cache."""
        self.manager = EncoderCacheManager(size)
        self.size = size
        self.requests: dict[str, Request] = {}
        self.entries: dict[str, set[str]] = {}
        """Requests that need an entry, by identifier; the entries that were last needed come last."""
        self.worker: set[str] = set()

    @rule(items=st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=4))
    def arrive(self, items):
        """Add a request that needs nothing so far."""
        request_id = str(len(self.requests))
        self.requests[request_id] = request_of(request_id, items)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), budget=st.integers(0, 12), undone=st.booleans())
    def encode(self, data, budget, undone):
        """Use a cached item, or encode it if there is room."""
        request, input_id = self.draw(data)
        name, before = request.mm_features[input_id].identifier, [*self.entries]
        cached = self.manager.check_and_update_cache(request, input_id)
        assert cached == (name in self.entries)
        if cached:
            self.entries[name].add(request.request_id)
            return
        size = SIZES[name]
        needed = sum(SIZES[other] for other, request_ids in self.entries.items() if request_ids)
        fits = self.manager.can_allocate(request, input_id, budget, 0)
        assert fits == (size <= budget and needed + size <= self.size)
        freed = self.manager.get_freed_mm_hashes()
        unneeded = [other for other in before if not self.entries[other]]
        assert freed == unneeded[: len(freed)], "the longest unneeded entries go first"
        for other in freed:
            assert sum(SIZES[one] for one in self.entries) + size > self.size, "an entry was evicted without need"
            del self.entries[other]
        self.worker -= set(freed)
        if not fits:
            return
        self.manager.allocate(request, input_id)
        if undone:
            assert self.manager.undo_allocate(request, input_id)
        else:
            self.entries[name] = {request.request_id}
            self.worker.add(name)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def compute(self, data):
        """Free an item whose tokens are computed, whether or not the request needed it."""
        request, input_id = self.draw(data)
        self.manager.free_encoder_input(request, input_id)
        self.forget(request, request.mm_features[input_id].identifier)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def end(self, data):
        """Free all items of a request."""
        request, _ = self.draw(data)
        self.manager.free(request)
        for feature in request.mm_features:
            self.forget(request, feature.identifier)

    def draw(self, data):
        """Draw a request and one of its items."""
        request = self.requests[data.draw(st.sampled_from(sorted(self.requests)))]
        return request, data.draw(st.integers(0, len(request.mm_features) - 1))

    def forget(self, request, name):
        """Move an entry to the end if this request was the last that needed it."""
        if request_ids := self.entries.get(name):
            request_ids.discard(request.request_id)
            if not request_ids:
                self.entries[name] = self.entries.pop(name)

    @invariant()
    def the_space_is_that_of_the_entries(self):
        """Entries, their requests, the order of eviction and both counts agree with the lists."""
        if not hasattr(self, "manager"):
            return
        unneeded = [name for name, request_ids in self.entries.items() if not request_ids]
        assert self.manager.cached == self.entries
        assert list(self.manager.freeable.items()) == [(name, SIZES[name]) for name in unneeded]
        assert self.manager.num_free_slots == self.size - sum(SIZES[name] for name in self.entries) >= 0
        assert self.manager.num_freeable_slots == self.manager.num_free_slots + sum(SIZES[name] for name in unneeded)
        assert self.worker == set(self.entries)


TestEncoderCache = EncoderCacheMachine.TestCase
TestEncoderCache.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
"""No order of uses, evictions and ends loses space, or an entry that a request needs."""
