"""All blocks of the KV cache: allocate, free, find by hash, evict.

Every change of a block's owner passes through here. The owners, the requests, are recorded one level above
(`single_type_kv_cache_manager.py`).

vLLM: vllm/v1/core/block_pool.py.
"""

from collections.abc import Iterable, Sequence

from tracellm.engine.core.kv_cache.kv_cache_utils import (
    BlockHash,
    BlockHashWithGroupId,
    FreeKVCacheBlockQueue,
    KVCacheBlock,
    make_block_hash_with_group_id,
)

__all__ = ["BlockHashToBlockMap", "BlockPool"]


class BlockHashToBlockMap:
    """A map from a hash to the blocks with that content.

    There can be several: two requests that compute the same tokens at the same time keep a block each, because a block
    table only grows and its entries never change.

    vLLM: vllm/v1/core/block_pool.py::BlockHashToBlockMap. Left out: storing a single block without its dict.
    """

    def __init__(self) -> None:
        self._blocks: dict[BlockHashWithGroupId, dict[int, KVCacheBlock]] = {}

    def get_one_block(self, block_hash: BlockHashWithGroupId) -> KVCacheBlock | None:
        """Return the oldest cached block with this hash, or None."""
        blocks = self._blocks.get(block_hash)
        return next(iter(blocks.values())) if blocks else None

    def insert(self, block_hash: BlockHashWithGroupId, block: KVCacheBlock) -> None:
        """Add `block` under `block_hash`."""
        self._blocks.setdefault(block_hash, {})[block.block_id] = block

    def pop(self, block_hash: BlockHashWithGroupId, block_id: int) -> None:
        """Remove one block."""
        blocks = self._blocks[block_hash]
        del blocks[block_id]
        if not blocks:
            del self._blocks[block_hash]

    def __len__(self) -> int:
        return len(self._blocks)


class BlockPool:
    """The blocks, the queue of free ones and the map of cached ones.

    A block is *used* (`ref_cnt` > 0) or in the free queue. A full block can also be *cached*: requests find it by its
    hash and share it. A free block stays cached until it is allocated again, which evicts it from the cache.

    vLLM: vllm/v1/core/block_pool.py::BlockPool. Left out: KV cache events.
    """

    def __init__(self, num_gpu_blocks: int) -> None:
        self.num_gpu_blocks = num_gpu_blocks
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks)
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        # Block 0 is never allocated. It means "no block" behind a sliding window, and in the workers' block tables,
        # which are padded with zeros.
        (self.null_block,) = self.free_block_queue.popleft_n(1)
        self.null_block.is_null = True

    def get_cached_block(self, block_hash: BlockHash, kv_cache_group_ids: Sequence[int]) -> list[KVCacheBlock] | None:
        """Return a cached block with this hash for each of these groups, or None if any group lacks one."""
        blocks = []
        for group_id in kv_cache_group_ids:
            key = make_block_hash_with_group_id(block_hash, group_id)
            block = self.cached_block_hash_to_block.get_one_block(key)
            if block is None:
                return None
            blocks.append(block)
        return blocks

    def cache_full_blocks(
        self,
        blocks: Sequence[KVCacheBlock],
        block_hashes: Sequence[BlockHash],
        num_cached_blocks: int,
        num_full_blocks: int,
        kv_cache_group_id: int,
    ) -> None:
        """Add a request's newly filled blocks to the prefix cache.

        Args:
            blocks: all blocks of the request in one group.
            block_hashes: the hashes of its full blocks, at least `num_full_blocks`.
            num_cached_blocks: number of leading blocks that are cached already.
            num_full_blocks: number of leading blocks to be cached afterwards.
            kv_cache_group_id: the group.
        """
        for index in range(num_cached_blocks, num_full_blocks):
            block = blocks[index]
            if block.is_null:
                continue  # the sliding window moved past it before its last token was known
            assert block.block_hash is None, f"{block} is cached already"
            block.block_hash = make_block_hash_with_group_id(block_hashes[index], kv_cache_group_id)
            self.cached_block_hash_to_block.insert(block.block_hash, block)

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Allocate blocks from the front of the free queue, evicting their cached content.

        Raises:
            ValueError: fewer are free; check `get_num_free_blocks` first.
        """
        blocks = self.free_block_queue.popleft_n(num_blocks)
        for block in blocks:
            if block.block_hash is not None:
                self._maybe_evict_cached_block(block)
            assert block.ref_cnt == 0
            block.ref_cnt = 1
        return blocks

    def _maybe_evict_cached_block(self, block: KVCacheBlock) -> bool:
        """Remove a block from the prefix cache. Return whether it was in it."""
        if block.block_hash is None:
            return False
        self.cached_block_hash_to_block.pop(block.block_hash, block.block_id)
        block.block_hash = None
        return True

    def evict_blocks(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Remove used blocks from the prefix cache. Later versions of vLLM have it, with block ids as arguments."""
        for block in blocks:
            self._maybe_evict_cached_block(block)

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Add a user to each of these cached blocks, removing free ones from the free queue."""
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """Remove a user from each of these blocks. Blocks without users become free, and are evicted in this order."""
        freed = []
        for block in ordered_blocks:
            if block.is_null:
                continue
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                freed.append(block)
        self.free_block_queue.append_n(freed)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache, for example after a change of the weights.

        Return False, and change nothing, while a block is in use.
        """
        if self.get_num_free_blocks() != self.num_gpu_blocks - 1:
            return False
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        for block in self.blocks:
            block.block_hash = None
        return True

    def get_num_free_blocks(self) -> int:
        """Return the number of free blocks, including those with cached content."""
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        """Return the used fraction of the blocks, 0 to 1."""
        return 1.0 - self.get_num_free_blocks() / (self.num_gpu_blocks - 1)
