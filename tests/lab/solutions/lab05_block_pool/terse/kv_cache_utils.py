"""Each operation in terms of one: unlinking a block, or walking the list."""

from itertools import islice


def _walk(queue):
    block = queue._head.next_free_block
    while block is not queue._tail:
        following = block.next_free_block
        yield block
        block = following


class FreeKVCacheBlockQueue:
    def popleft_n(self, n):
        if self.num_free_blocks < n:
            raise ValueError(n)
        chosen = list(islice(_walk(self), n))
        for block in chosen:
            self.remove(block)
        return chosen

    def remove(self, block):
        if not (block.prev_free_block and block.next_free_block):
            raise ValueError(block.block_id)
        block.prev_free_block.next_free_block, block.next_free_block.prev_free_block = (
            block.next_free_block,
            block.prev_free_block,
        )
        block.prev_free_block, block.next_free_block = None, None
        self.num_free_blocks = self.num_free_blocks - 1

    def append_n(self, blocks):
        for block in blocks:
            before = self._tail.prev_free_block
            before.next_free_block = self._tail.prev_free_block = block
            block.prev_free_block, block.next_free_block = before, self._tail
            self.num_free_blocks += 1

    def get_all_free_blocks(self):
        return [*_walk(self)]
