"""All blocks of the KV cache: hand out, take back, find by content, evict.

Every change of a block's owner passes through here. It knows nothing of requests: who owns which block is kept by the
manager above (`single_type_kv_cache_manager.py`).

vLLM: vllm/v1/core/block_pool.py.
"""

from collections.abc import Iterable, Sequence

from tracellm.engine.core.kv_cache.kv_cache_block import (
    BlockHash,
    BlockHashWithGroupId,
    FreeKVCacheBlockQueue,
    KVCacheBlock,
    make_block_hash_with_group_id,
)

__all__ = ["BlockHashToBlockMap", "BlockPool"]


class BlockHashToBlockMap:
    """From a hash to the blocks with that content.

    There can be several: two requests that computed the same tokens at the same time keep a block each, since a
    request's block table only ever grows and never changes.

    vLLM: vllm/v1/core/block_pool.py::BlockHashToBlockMap. Left out: storing a single block without its dict.
    """

    def __init__(self) -> None:
        self._blocks: dict[BlockHashWithGroupId, dict[int, KVCacheBlock]] = {}

    def get_one_block(self, block_hash: BlockHashWithGroupId) -> KVCacheBlock | None:
        """The block that has been cached longest under this hash, or None."""
        blocks = self._blocks.get(block_hash)
        return next(iter(blocks.values())) if blocks else None

    def insert(self, block_hash: BlockHashWithGroupId, block: KVCacheBlock) -> None:
        """Make `block` findable under `block_hash`."""
        self._blocks.setdefault(block_hash, {})[block.block_id] = block

    def pop(self, block_hash: BlockHashWithGroupId, block_id: int) -> None:
        """Make this one block unfindable."""
        blocks = self._blocks[block_hash]
        del blocks[block_id]
        if not blocks:
            del self._blocks[block_hash]

    def __len__(self) -> int:
        return len(self._blocks)


class BlockPool:
    """The blocks, the queue of the free ones and the map of the cached ones.

    A block is *used* (`ref_cnt` > 0) or in the free queue. A full block may also be *cached*: found by its hash, by any
    number of requests at once. A free block stays cached until it is handed out again: that is the eviction.

    vLLM: vllm/v1/core/block_pool.py::BlockPool. Left out: KV cache events.
    """

    def __init__(self, num_gpu_blocks: int) -> None:
        self.num_gpu_blocks = num_gpu_blocks
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks)
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        # Block 0 is never handed out: it stands for "no block" where a sliding window has moved on, and in the workers'
        # tables, which are padded with zeros.
        (self.null_block,) = self.free_block_queue.popleft_n(1)
        self.null_block.is_null = True

    def get_cached_block(self, block_hash: BlockHash, kv_cache_group_ids: Sequence[int]) -> list[KVCacheBlock] | None:
        """For each of these groups a block with these tokens, used or free; None if any of them has none."""
        blocks = []
        for group_id in kv_cache_group_ids:
            name = make_block_hash_with_group_id(block_hash, group_id)
            block = self.cached_block_hash_to_block.get_one_block(name)
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
        """Make a request's newly filled blocks findable.

        Args:
            blocks: all blocks of the request in one group.
            block_hashes: the hashes of its full blocks, at least `num_full_blocks`.
            num_cached_blocks: how many of them are cached already.
            num_full_blocks: how many shall be cached afterwards.
            kv_cache_group_id: the group.
        """
        for index in range(num_cached_blocks, num_full_blocks):
            block = blocks[index]
            if block.is_null:
                continue  # a sliding window has left it behind, before its last token was known
            assert block.block_hash is None, f"{block} is cached already"
            block.block_hash = make_block_hash_with_group_id(block_hashes[index], kv_cache_group_id)
            self.cached_block_hash_to_block.insert(block.block_hash, block)

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks from the front of the free queue; what they had cached is evicted.

        Raises:
            ValueError: fewer are free; ask `get_num_free_blocks` first.
        """
        blocks = self.free_block_queue.popleft_n(num_blocks)
        for block in blocks:
            if block.block_hash is not None:
                self._maybe_evict_cached_block(block)
            assert block.ref_cnt == 0
            block.ref_cnt = 1
        return blocks

    def _maybe_evict_cached_block(self, block: KVCacheBlock) -> bool:
        """Forget a block's content. Says whether it had been cached."""
        if block.block_hash is None:
            return False
        self.cached_block_hash_to_block.pop(block.block_hash, block.block_id)
        block.block_hash = None
        return True

    def evict_blocks(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Forget the content of blocks in use. vLLM: later versions have it, for blocks given by their ids."""
        for block in blocks:
            self._maybe_evict_cached_block(block)

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """One more request uses these cached blocks; those that were free leave the free queue."""
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """One request less uses these blocks; those without any user become free, the first to be evicted first."""
        freed = []
        for block in ordered_blocks:
            if block.is_null:
                continue
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                freed.append(block)
        self.free_block_queue.append_n(freed)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content, as after a change of the weights. Refuses (False) while a block is in use."""
        if self.get_num_free_blocks() != self.num_gpu_blocks - 1:
            return False
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        for block in self.blocks:
            block.block_hash = None
        return True

    def get_num_free_blocks(self) -> int:
        """Blocks that can be handed out now, those with cached content among them."""
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        """The share of the blocks in use, 0 to 1."""
        return 1.0 - self.get_num_free_blocks() / (self.num_gpu_blocks - 1)
