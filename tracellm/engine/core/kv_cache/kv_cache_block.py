"""One block of the KV cache, and the queue of the blocks that nobody uses.

A block is only a row in a table here (an id, a count of its users, a hash); the keys and values lie in the workers'
tensors at that id. The free queue decides which cached content is lost first.

vLLM: vllm/v1/core/kv_cache_utils.py::KVCacheBlock and ::FreeKVCacheBlockQueue.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType

__all__ = [
    "BlockHash",
    "BlockHashWithGroupId",
    "FreeKVCacheBlockQueue",
    "KVCacheBlock",
    "get_block_hash",
    "make_block_hash_with_group_id",
]

BlockHash = NewType("BlockHash", bytes)
"""The name of a full block's tokens: a digest over them and over all tokens before them."""

BlockHashWithGroupId = NewType("BlockHashWithGroupId", bytes)
"""The name of a full block's content: its tokens, and the KV cache group whose layers have keys and values in it."""


def make_block_hash_with_group_id(block_hash: BlockHash, group_id: int) -> BlockHashWithGroupId:
    """Name the block that holds these tokens for this group."""
    return BlockHashWithGroupId(block_hash + group_id.to_bytes(4, "big"))


def get_block_hash(block_hash: BlockHashWithGroupId) -> BlockHash:
    """The name of the tokens alone."""
    return BlockHash(block_hash[:-4])


@dataclass(eq=False, slots=True)
class KVCacheBlock:
    """What the engine knows of one block. Compared by identity.

    vLLM: vllm/v1/core/kv_cache_utils.py::KVCacheBlock.
    """

    block_id: int
    """Its place in the workers' tensors, 0 to `num_blocks - 1`."""
    ref_cnt: int = 0
    """How many requests use it. At 0 it lies in the free queue, its content still there until someone takes it."""
    is_null: bool = False
    """It is `BlockPool.null_block`, which stands for no block: its users are not counted, it is never free."""
    block_hash: BlockHashWithGroupId | None = None
    """Set while the block is full and can be found by its content."""
    prev_free_block: "KVCacheBlock | None" = None
    next_free_block: "KVCacheBlock | None" = None

    def __repr__(self) -> str:
        # The neighbours would be printed with all of theirs.
        return f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt}, block_hash={self.block_hash!r})"


class FreeKVCacheBlockQueue:
    """The free blocks as a doubly linked list, next to be taken first.

    The front is what has gone unused longest (LRU); of blocks freed together by one request, its last comes first,
    since a prefix is worth more than what follows it (the requests' manager sees to that by freeing in reverse). A
    linked list rather than a deque, because a cache hit takes a block out of the middle, in O(1).

    vLLM: vllm/v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue. Left out: `append` and `popleft` of one block.
    """

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        # Two sentinels, so that every real block has neighbours on both sides.
        self._head = KVCacheBlock(block_id=-1)
        self._tail = KVCacheBlock(block_id=-1)
        self._head.next_free_block = self._tail
        self._tail.prev_free_block = self._head
        self.append_n(blocks)

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the first `n` blocks.

        Raises:
            ValueError: there are fewer than `n`.
        """
        if n > self.num_free_blocks:
            raise ValueError(f"{n} blocks wanted, {self.num_free_blocks} are free")
        popped = []
        block = self._head.next_free_block
        for _ in range(n):
            assert block is not None
            popped.append(block)
            following = block.next_free_block
            block.prev_free_block = block.next_free_block = None
            block = following
        assert block is not None
        self._head.next_free_block = block
        block.prev_free_block = self._head
        self.num_free_blocks -= n
        return popped

    def remove(self, block: KVCacheBlock) -> None:
        """Take one block out, wherever it is in the queue.

        Raises:
            ValueError: it is not in the queue.
        """
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise ValueError(f"{block} is not in the free queue")
        before.next_free_block = after
        after.prev_free_block = before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Put blocks at the end, in the given order."""
        last = self._tail.prev_free_block
        assert last is not None
        for block in blocks:
            last.next_free_block = block
            block.prev_free_block = last
            last = block
            self.num_free_blocks += 1
        last.next_free_block = self._tail
        self._tail.prev_free_block = last

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """The free blocks, next to be taken first."""
        blocks = []
        block = self._head.next_free_block
        while block is not None and block is not self._tail:
            blocks.append(block)
            block = block.next_free_block
        return blocks
