"""Walks along the links with a while loop, and stores blocks in lists before linking anything."""


class FreeKVCacheBlockQueue:
    def get_all_free_blocks(self):
        found, block = [], self._tail.prev_free_block
        while block is not self._head:
            found.insert(0, block)
            block = block.prev_free_block
        return found

    def popleft_n(self, n):
        if n > self.num_free_blocks:
            raise ValueError("too many")
        taken = []
        for _ in range(n):
            block = self._head.next_free_block
            taken.append(block)
            self.remove(block)
        return taken

    def remove(self, block):
        if block.next_free_block is None:
            raise ValueError("the block is in use")
        left = block.prev_free_block
        right = block.next_free_block
        left.next_free_block = right
        right.prev_free_block = left
        block.prev_free_block = None
        block.next_free_block = None
        self.num_free_blocks -= 1

    def append_n(self, blocks):
        for block in list(blocks):
            last = self._tail.prev_free_block
            block.prev_free_block = last
            block.next_free_block = self._tail
            last.next_free_block = block
            self._tail.prev_free_block = block
            self.num_free_blocks += 1
