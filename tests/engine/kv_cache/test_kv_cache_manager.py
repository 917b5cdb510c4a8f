"""Tests of the KV cache manager, the scheduler's interface to the KV cache."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sched.harness import make_kv_cache_config, make_request
from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheManager
from tracellm.engine.core.request import Request

BLOCK = 4


def make_manager(num_blocks: int = 11, enable_caching: bool = True) -> KVCacheManager:
    """Make a manager of ten usable blocks of four tokens."""
    return KVCacheManager(make_kv_cache_config(num_blocks, BLOCK), enable_caching)


def request(request_id: str, prompt: int | list[int]) -> Request:
    """Make a request over blocks of four tokens."""
    return make_request(request_id, prompt, block_size=BLOCK)


def start(manager: KVCacheManager, new: Request) -> tuple[list[int], int]:
    """Allocate the slots of a request's whole prompt; return all its blocks and the number of cached tokens."""
    blocks, num_cached = manager.get_computed_blocks(new)
    assert manager.allocate_slots(new, new.num_tokens - num_cached, num_cached, blocks) is not None
    new.num_computed_tokens = new.num_tokens
    return manager.get_block_ids(new.request_id)[0], num_cached


def test_a_request_gets_just_the_blocks_that_its_tokens_need():
    """Nine tokens take 3 blocks of 4, the next 3 tokens take none, and the one after them takes one."""
    manager, a = make_manager(), request("a", 9)
    assert start(manager, a) == ([1, 2, 3], 0)
    for _ in range(3):
        a.append_output_token_ids(7)
        assert manager.allocate_slots(a, 1) is manager.empty_kv_cache_blocks
        a.num_computed_tokens += 1
    a.append_output_token_ids(7)
    blocks = manager.allocate_slots(a, 1)
    assert blocks is not None
    assert blocks.get_block_ids() == ([4],)


@settings(max_examples=60, deadline=None)
@given(
    caching=st.booleans(),
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=4),
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60),
)
def test_a_step_is_passed_over_only_when_it_changes_nothing(caching, prompts, turns):
    """Skipping steps that change nothing gives the same blocks and cache contents as running every step."""
    short, whole = make_manager(12, caching), make_manager(12, caching)
    requests = [request(str(i), prompt) for i, prompt in enumerate(prompts)]
    for which, tokens in turns:
        one = requests[which % len(requests)]
        outcomes = []
        for manager in (short, whole):
            whole._next_change.clear()
            if not tokens:  # preempted
                manager.free(one)
                continue
            computed, cached = (
                (None, 0) if manager.get_block_ids(one.request_id)[0] else manager.get_computed_blocks(one)
            )
            new = manager.allocate_slots(
                one, min(tokens, one.num_tokens - one.num_computed_tokens - cached), cached, computed
            )
            outcomes.append((cached, new and new.get_block_ids()))
        assert outcomes[:1] == outcomes[1:]
        if not tokens:
            one.num_computed_tokens = 0
        elif outcomes[0][1] is not None:
            cached = outcomes[0][0]
            one.num_computed_tokens += cached + min(tokens, one.num_tokens - one.num_computed_tokens - cached)
            if one.num_computed_tokens == one.num_tokens:
                one.append_output_token_ids(which % 2)
        for each in requests:
            assert short.get_block_ids(each.request_id) == whole.get_block_ids(each.request_id)
        assert [b.block_hash for b in short.block_pool.blocks] == [b.block_hash for b in whole.block_pool.blocks]


def test_a_shared_prefix_is_shared_block_by_block():
    """The second request uses the full blocks that both share, and allocates its own."""
    manager = make_manager()
    assert start(manager, request("a", [1, 2, 3, 4, 5, 6, 7, 8, 9])) == ([1, 2, 3], 0)
    assert start(manager, request("b", [1, 2, 3, 4, 5, 6, 7, 0, 0])) == ([1, 4, 5], 4)
    assert manager.block_pool.blocks[1].ref_cnt == 2


def test_the_same_tokens_after_others_are_not_the_same_block():
    """A cached block is found only after the same prefix with which it was computed."""
    manager = make_manager()
    start(manager, request("a", [1, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert start(manager, request("b", [0, 0, 0, 0, 5, 6, 7, 8, 9]))[1] == 0


@pytest.mark.parametrize(("length", "cached"), [(8, 4), (9, 8), (4, 0), (12, 8)])
def test_the_last_token_is_always_computed(length, cached):
    """A fully cached prompt recomputes its last block, since its logits are needed."""
    manager = make_manager()
    first = request("a", list(range(length)))
    start(manager, first)
    manager.free(first)
    assert start(manager, request("b", list(range(length))))[1] == cached


def test_the_tail_is_evicted_before_the_prefix():
    """Blocks are freed last block first, so new requests overwrite the end of a prompt before its beginning."""
    manager = make_manager(num_blocks=5)
    a = request("a", list(range(16)))
    assert start(manager, a)[0] == [1, 2, 3, 4]
    manager.free(a)
    b = request("b", [99] * 8)
    assert start(manager, b)[0] == [4, 3]
    manager.free(b)
    assert start(manager, request("c", list(range(9))))[1] == 8


def test_without_caching_nothing_is_found_or_remembered():
    """With prefix caching off, equal prompts share nothing."""
    manager = make_manager(enable_caching=False)
    start(manager, request("a", list(range(8))))
    assert start(manager, request("b", list(range(8)))) == ([3, 4], 0)
    assert len(manager.block_pool.cached_block_hash_to_block) == 0
    assert manager.get_num_common_prefix_blocks("a") == [0]


def test_a_refusal_changes_nothing():
    """Allocation returns None when too few blocks are free, and leaves all blocks unchanged."""
    manager = make_manager(num_blocks=5)
    a = request("a", list(range(9)))
    start(manager, a)
    b = request("b", [*range(8), *range(50, 60)])
    blocks, num_cached = manager.get_computed_blocks(b)
    assert manager.get_num_blocks_to_allocate(b, 10, blocks) == 3
    assert manager.allocate_slots(b, 10, num_cached, blocks) is None
    assert manager.block_pool.get_num_free_blocks() == 1
    assert [block.ref_cnt for block in manager.block_pool.blocks[1:]] == [1, 1, 1, 0]
    assert manager.get_block_ids("b") == ([],)


def test_free_blocks_that_a_hit_would_use_are_not_counted_as_room():
    """A hit in free blocks counts them as taken: 2 hits and 1 new block need 3 free blocks."""
    manager = make_manager(num_blocks=4)
    a = request("a", list(range(8)))
    start(manager, a)
    manager.free(a)
    b = request("b", [*range(8), 50, 51])
    blocks, num_cached = manager.get_computed_blocks(b)
    assert num_cached == 8
    assert manager.get_num_blocks_to_allocate(b, 2, blocks) == 3
    start(manager, request("c", [77]))
    assert manager.allocate_slots(b, 2, num_cached, blocks) is None


def test_no_tokens_is_a_mistake():
    """Allocating slots for no tokens raises an error."""
    with pytest.raises(ValueError, match="num_new_tokens"):
        make_manager().allocate_slots(request("a", 4), 0)


def test_common_prefix_counts_blocks_that_all_requests_use():
    """Two requests with one common block have a common prefix of one block, and a third without it ends that."""
    manager = make_manager(num_blocks=20)
    start(manager, request("a", [1, 2, 3, 4, 5, 6, 7, 8]))
    start(manager, request("b", [1, 2, 3, 4, 0, 0, 0, 0]))
    assert manager.get_num_common_prefix_blocks("a") == [1]
    start(manager, request("c", [9, 9]))
    assert manager.get_num_common_prefix_blocks("a") == [0]


def test_usage_rises_and_falls_with_the_requests():
    """Usage is the share of blocks that requests hold."""
    manager, a = make_manager(), request("a", 9)
    start(manager, a)
    assert manager.usage == pytest.approx(0.3)
    manager.free(a)
    assert manager.usage == 0
