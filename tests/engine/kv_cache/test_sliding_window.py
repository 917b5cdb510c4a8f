"""Tests of sliding windows in the KV cache: freed blocks, and prefix hits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.kv_cache.test_kv_cache_manager import start
from tests.engine.sched.harness import make_config, make_kv_cache_config, make_request
from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheManager
from tracellm.engine.core.kv_cache.kv_cache_utils import get_num_blocks_alone
from tracellm.engine.core.request import Request

BLOCK = 4


def make_manager(*windows: int | None, num_blocks: int = 21, enable_caching: bool = True) -> KVCacheManager:
    """Make a manager with blocks of four tokens and a group for each window."""
    return KVCacheManager(make_kv_cache_config(num_blocks, BLOCK, windows), enable_caching)


def request(request_id: str, prompt: int | list[int]) -> Request:
    """Make a request over blocks of four tokens."""
    return make_request(request_id, prompt, block_size=BLOCK)


def go_on(manager: KVCacheManager, running: Request, num_tokens: int = 1) -> tuple[list[int], ...]:
    """Generate and compute tokens; return the request's blocks."""
    for _ in range(num_tokens):
        running.append_output_token_ids(7)
        assert manager.allocate_slots(running, 1) is not None
        running.num_computed_tokens += 1
    return manager.get_block_ids(running.request_id)


def test_blocks_outside_the_window_are_given_back():
    """Blocks outside the window are freed, and the null block takes their index."""
    manager, a = make_manager(5), request("a", 8)
    assert start(manager, a)[0] == [1, 2]
    assert go_on(manager, a) == ([0, 2, 3],)
    assert manager.block_pool.get_num_free_blocks() == 20 - 2
    assert go_on(manager, a, 3) == ([0, 2, 3],)
    assert go_on(manager, a) == ([0, 0, 3, 4],)


def test_a_window_as_long_as_the_request_keeps_everything():
    """No block is freed while the next token attends to the first."""
    manager, a = make_manager(13), request("a", 8)
    start(manager, a)
    assert go_on(manager, a, 5) == ([1, 2, 3, 4],)


def test_blocks_given_back_are_evicted_last_block_first():
    """When several blocks leave the window at once, the last is the first to be allocated again."""
    manager, a = make_manager(2, num_blocks=6), request("a", 16)
    assert start(manager, a)[0] == [1, 2, 3, 4]
    assert go_on(manager, a) == ([0, 0, 0, 4, 5],)
    assert start(manager, request("b", [9] * 9))[0] == [3, 2, 1]


def test_blocks_are_given_back_even_to_a_request_that_is_refused():
    """A request that finds too few free blocks still frees those outside its window."""
    manager, a = make_manager(2, num_blocks=5), request("a", 16)
    start(manager, a)
    a.append_output_token_ids([7] * 17)
    assert manager.allocate_slots(a, 17) is None
    assert manager.get_block_ids("a") == ([0, 0, 0, 4],)
    assert manager.block_pool.get_num_free_blocks() == 3


def test_what_has_left_the_window_can_still_be_found():
    """Blocks that left the window can be found by another request with the same prefix until they are allocated."""
    manager, a = make_manager(5), request("a", list(range(16)))
    start(manager, a)
    go_on(manager, a)
    assert start(manager, request("b", [*range(8), 50]))[1] == 8


@pytest.mark.parametrize(
    ("lost", "cached"),
    [
        ([], [0, 0, 0, 4, 5]),  # token 20's window begins in the fifth block, token 15's in the fourth
        ([1, 2, 3], [0, 0, 0, 4, 5]),
        ([5], [0, 0, 3, 4]),
        ([4], [0, 2, 3]),
        ([3, 5], [1, 2]),  # block 4 alone is too short a run
        ([2, 4], [1]),  # a shorter run from the first block is enough
        ([1, 3, 5], []),
    ],
)
def test_a_prefix_is_worth_the_run_of_blocks_that_the_window_reaches(lost, cached):
    """With a window of 6, two adjacent cached blocks make a hit anywhere, and the longest prefix wins."""
    manager, a = make_manager(6), request("a", list(range(20)))
    assert start(manager, a)[0] == [1, 2, 3, 4, 5]
    manager.free(a)
    for block_id in lost:
        manager.block_pool._maybe_evict_cached_block(manager.block_pool.blocks[block_id])
    blocks, num_tokens = manager.get_computed_blocks(request("b", [*range(20), 50]))
    assert blocks.get_block_ids() == (cached,)
    assert num_tokens == 4 * len(cached)


def test_null_blocks_of_a_hit_need_no_room():
    """A hit of two free blocks after three null blocks takes two free blocks and one new block."""
    manager, a = make_manager(6), request("a", list(range(20)))
    start(manager, a)
    manager.free(a)
    b = request("b", [*range(20), 50])
    blocks, _ = manager.get_computed_blocks(b)
    assert manager.get_num_blocks_to_allocate(b, 1, blocks) == 3
    assert start(manager, b) == ([0, 0, 0, 4, 5, 6], 20)
    assert manager.block_pool.null_block.ref_cnt == 0
    manager.free(b)
    assert manager.block_pool.get_num_free_blocks() == 20


def test_no_common_prefix_with_a_window():
    """Groups with a window have no common prefix; full attention counts its own."""
    manager = make_manager(None, 9)
    start(manager, request("a", [1, 2, 3, 4, 5]))
    start(manager, request("b", [1, 2, 3, 4, 6]))
    assert manager.get_num_common_prefix_blocks("a") == [1, 0]


def test_groups_draw_from_one_pool():
    """Groups share one pool, a request has a row of blocks in each, and only groups with windows free blocks early."""
    manager, a = make_manager(5, 5, None), request("a", 8)
    start(manager, a)
    assert manager.get_block_ids("a") == ([1, 2], [3, 4], [5, 6])
    assert go_on(manager, a) == ([0, 2, 7], [0, 4, 8], [5, 6, 9])
    manager.free(a)
    assert manager.block_pool.get_num_free_blocks() == 20


def test_a_refusal_counts_all_groups():
    """Each group needs its block: with two free blocks, allocation for three groups fails."""
    manager = make_manager(5, 5, None, num_blocks=6)
    assert manager.allocate_slots(request("a", 4), 4) is not None
    assert manager.allocate_slots(request("b", 4), 4) is None
    assert manager.block_pool.get_num_free_blocks() == 2


@pytest.mark.parametrize("windows", [(None, 6), (6, None), (None, None, 6), (6, 6, None)])
def test_a_hit_is_what_all_groups_have(windows):
    """A hit is the longest prefix that full attention has whole and windows have at its end."""
    manager, a = make_manager(*windows, num_blocks=40), request("a", list(range(20)))
    start(manager, a)
    of_group = manager.get_block_ids("a")
    manager.free(a)
    pool = manager.block_pool
    # The windows lose their third block, so they allow a hit of 2 blocks or of 5; full attention loses its last.
    for window, blocks in zip(windows, of_group, strict=True):
        pool._maybe_evict_cached_block(pool.blocks[blocks[4] if window is None else blocks[2]])
    hit, num_tokens = manager.get_computed_blocks(request("b", [*range(20), 50]))
    assert num_tokens == 8
    assert hit.get_block_ids() == tuple(blocks[:2] for blocks in of_group)


def test_a_hit_of_all_groups_has_null_blocks_where_a_window_does_not_look():
    """All rows of a hit are equally long, with null blocks before the window."""
    manager, a = make_manager(None, 6, num_blocks=40), request("a", list(range(20)))
    start(manager, a)
    full, windowed = manager.get_block_ids("a")
    manager.free(a)
    assert start(manager, request("b", [*range(20), 50])) == ([*full, 11], 20)
    assert manager.get_block_ids("b")[1] == [0, 0, 0, *windowed[3:], 12]


def test_windows_of_two_lengths_without_caching():
    """Without a prefix cache, windows of any lengths can be combined."""
    manager = make_manager(5, 9, enable_caching=False)
    a = request("a", 12)
    start(manager, a)
    assert go_on(manager, a) == ([0, 0, 3, 7], [0, 5, 6, 8])
    assert manager.get_num_common_prefix_blocks("a") == [0, 0]
    assert manager.get_computed_blocks(request("b", 12))[1] == 0


@given(
    windows=st.lists(st.none() | st.integers(1, 14), min_size=1, max_size=3),
    num_prompt_tokens=st.integers(1, 40),
    num_output_tokens=st.integers(0, 40),
    budget=st.integers(1, 24),
    threshold=st.integers(0, 12),
)
def test_a_request_alone_needs_just_as_many_blocks_as_it_is_said_to(
    windows, num_prompt_tokens, num_output_tokens, budget, threshold
):
    """A request alone gets its slots with the computed number of blocks, and fails with one block less."""
    config = make_config(max_num_batched_tokens=budget, long_prefill_token_threshold=threshold)
    groups, num_tokens = make_kv_cache_config(2, BLOCK, windows).kv_cache_groups, num_prompt_tokens + num_output_tokens
    needed = get_num_blocks_alone(groups, num_prompt_tokens, num_tokens, config)

    def runs(num_blocks: int) -> bool:
        manager = make_manager(*windows, num_blocks=num_blocks + 1, enable_caching=False)
        alone, chunk = request("a", num_prompt_tokens), min(budget, threshold or budget)
        for length in range(num_prompt_tokens, num_tokens + 1):
            while alone.num_computed_tokens < length:
                num_new_tokens = min(chunk, length - alone.num_computed_tokens)
                if manager.allocate_slots(alone, num_new_tokens) is None:
                    return False
                alone.num_computed_tokens += num_new_tokens
            alone.append_output_token_ids(7)
        return True

    assert runs(needed)
    assert not runs(needed - 1)
