"""Tests of the block pool: allocation, freeing, lookup and eviction."""

import pytest

from tracellm.engine.core.kv_cache.block_pool import BlockPool
from tracellm.engine.core.kv_cache.kv_cache_utils import (
    BlockHash,
    KVCacheBlock,
    get_block_hash,
    make_block_hash_with_group_id,
)

A, B, C = BlockHash(b"a"), BlockHash(b"b"), BlockHash(b"c")


def cached(pool: BlockPool, *hashes: BlockHash) -> list[KVCacheBlock]:
    """Allocate and cache new blocks with these contents."""
    blocks = pool.get_new_blocks(len(hashes))
    pool.cache_full_blocks(blocks, hashes, 0, len(hashes), kv_cache_group_id=0)
    return blocks


def test_block_0_is_never_handed_out():
    """The null block is not among the free ones, so a pool of n blocks has n - 1 for requests."""
    pool = BlockPool(4)
    assert pool.null_block.block_id == 0
    assert [block.block_id for block in pool.get_new_blocks(3)] == [1, 2, 3]
    with pytest.raises(ValueError, match="1 blocks wanted, 0 are free"):
        pool.get_new_blocks(1)


def test_freed_content_can_be_found_until_its_block_is_used_anew():
    """A free block keeps its content until it is allocated again, which evicts it."""
    pool = BlockPool(3)
    first, second = cached(pool, A, B)
    pool.free_blocks([second, first])
    assert pool.get_cached_block(A, [0]) == [first]
    assert pool.get_new_blocks(1) == [second]
    assert pool.get_cached_block(B, [0]) is None
    assert pool.get_cached_block(A, [0]) == [first]
    assert second.block_hash is None
    assert len(pool.cached_block_hash_to_block) == 1


def test_a_touched_block_is_in_use_again():
    """A hit takes a free block out of the queue, and only its last user frees it."""
    pool = BlockPool(3)
    blocks = cached(pool, A)
    pool.free_blocks(blocks)
    pool.touch(blocks)
    pool.touch(blocks)
    assert blocks[0].ref_cnt == 2
    assert pool.get_num_free_blocks() == 1
    pool.free_blocks(blocks)
    assert pool.get_num_free_blocks() == 1
    pool.free_blocks(blocks)
    assert pool.get_num_free_blocks() == 2


def test_equal_blocks_are_both_kept():
    """Among blocks with the same content the older is found, and the younger after the older is gone."""
    pool = BlockPool(3)
    (old,), (young,) = cached(pool, A), cached(pool, A)
    assert pool.get_cached_block(A, [0]) == [old]
    pool.free_blocks([old])
    assert pool.get_new_blocks(1) == [old]
    assert pool.get_cached_block(A, [0]) == [young]
    assert len(pool.cached_block_hash_to_block) == 1


def test_only_blocks_that_are_newly_full_are_cached():
    """Blocks before `num_cached_blocks` and from `num_full_blocks` on are left alone."""
    pool = BlockPool(4)
    blocks = pool.get_new_blocks(3)
    pool.cache_full_blocks(blocks, [A, B, C], 1, 2, kv_cache_group_id=0)
    assert [block.block_hash for block in blocks] == [None, make_block_hash_with_group_id(B, 0), None]


def test_groups_with_the_same_tokens_have_blocks_of_their_own():
    """The same tokens in two groups are two blocks, and a lookup in both groups finds both or none."""
    pool = BlockPool(4)
    first, second = pool.get_new_blocks(2)
    pool.cache_full_blocks([first], [A], 0, 1, kv_cache_group_id=0)
    assert pool.get_cached_block(A, [1]) is None
    assert pool.get_cached_block(A, [0, 1]) is None
    pool.cache_full_blocks([second], [A], 0, 1, kv_cache_group_id=1)
    assert pool.get_cached_block(A, [0, 1]) == [first, second]
    assert second.block_hash is not None
    assert get_block_hash(second.block_hash) == A


def test_the_null_block_is_neither_counted_nor_freed():
    """Touched and freed like the others, block 0 stays out of the free queue."""
    pool = BlockPool(4)
    pool.touch([pool.null_block, pool.null_block])
    pool.free_blocks([pool.null_block])
    assert pool.null_block.ref_cnt == 0
    assert [block.block_id for block in pool.free_block_queue.get_all_free_blocks()] == [1, 2, 3]


def test_reset_forgets_everything_unless_a_block_is_in_use():
    """Resetting the prefix cache fails while a request holds a block, and otherwise removes all cached blocks."""
    pool = BlockPool(4)
    blocks = cached(pool, A, B)
    assert not pool.reset_prefix_cache()
    assert pool.get_cached_block(A, [0]) is not None
    pool.free_blocks(blocks)
    assert pool.reset_prefix_cache()
    assert pool.get_cached_block(A, [0]) is None
    assert len(pool.cached_block_hash_to_block) == 0
    assert all(block.block_hash is None for block in pool.blocks)


def test_usage_is_a_share_of_the_usable_blocks():
    """The null block counts neither as used nor as usable."""
    pool = BlockPool(5)
    assert pool.get_usage() == 0
    pool.get_new_blocks(3)
    assert pool.get_usage() == 0.75
