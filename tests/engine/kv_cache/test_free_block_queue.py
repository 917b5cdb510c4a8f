"""Tests of the queue of free blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracellm.engine.core.kv_cache.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock


def make(count: int) -> tuple[list[KVCacheBlock], FreeKVCacheBlockQueue]:
    """Make `count` free blocks."""
    blocks = [KVCacheBlock(block_id) for block_id in range(count)]
    return blocks, FreeKVCacheBlockQueue(blocks)


def ids(blocks: list[KVCacheBlock]) -> list[int]:
    """Return the blocks' ids."""
    return [block.block_id for block in blocks]


def test_first_freed_is_first_taken():
    """Blocks leave the queue in the order in which they were added."""
    _, queue = make(4)
    taken = queue.popleft_n(3)
    queue.append_n([taken[2], taken[0]])
    assert ids(taken) == [0, 1, 2]
    assert ids(queue.get_all_free_blocks()) == [3, 2, 0]
    assert queue.num_free_blocks == 3


def test_more_than_are_free_cannot_be_taken():
    """Allocating too many blocks raises an error with both numbers, and leaves the queue unchanged."""
    _, queue = make(2)
    with pytest.raises(ValueError, match="3 blocks wanted, 2 are free"):
        queue.popleft_n(3)
    assert ids(queue.get_all_free_blocks()) == [0, 1]


def test_a_block_that_is_not_free_cannot_be_removed():
    """Removing a block twice raises an error instead of corrupting the list."""
    blocks, queue = make(2)
    queue.remove(blocks[1])
    with pytest.raises(ValueError, match="not in the free queue"):
        queue.remove(blocks[1])


@given(st.lists(st.one_of(st.integers(0, 4), st.tuples(st.just("remove"), st.integers(0, 9)), st.just("append"))))
def test_behaves_as_a_list(actions):
    """Any sequence of allocating, removing from the middle and freeing gives the same blocks as a plain list."""
    blocks, queue = make(10)
    model = list(blocks)
    out: list[KVCacheBlock] = []
    for action in actions:
        if action == "append":
            back = out[::2]
            queue.append_n(back)
            model += back
            out = [block for block in out if block not in back]
        elif isinstance(action, int):
            count = min(action, len(model))
            assert queue.popleft_n(count) == model[:count]
            out += model[:count]
            model = model[count:]
        elif blocks[action[1]] in model:
            queue.remove(blocks[action[1]])
            model.remove(blocks[action[1]])
            out.append(blocks[action[1]])
        assert queue.get_all_free_blocks() == model
        assert queue.num_free_blocks == len(model)
