"""The links are set in one helper; a slice of the list is cut off at once."""


def join(left, right):
    left.next_free_block = right
    right.prev_free_block = left


class FreeKVCacheBlockQueue:
    def popleft_n(self, n):
        if not 0 <= n <= self.num_free_blocks:
            raise ValueError("not enough free blocks")
        first, out = self._head.next_free_block, []
        while len(out) != n:
            out.append(first)
            first = first.next_free_block
        join(self._head, first)
        for block in out:
            block.next_free_block = block.prev_free_block = None
        self.num_free_blocks -= len(out)
        return out

    def remove(self, block):
        neighbours = (block.prev_free_block, block.next_free_block)
        if None in neighbours:
            raise ValueError("not free")
        join(*neighbours)
        block.next_free_block = block.prev_free_block = None
        self.num_free_blocks -= 1

    def append_n(self, blocks):
        added = list(blocks)
        chain = [self._tail.prev_free_block, *added, self._tail]
        for left, right in zip(chain, chain[1:]):
            join(left, right)
        self.num_free_blocks += len(added)

    def get_all_free_blocks(self):
        def after(block):
            result = []
            while block.next_free_block is not self._tail:
                block = block.next_free_block
                result.append(block)
            return result

        return after(self._head)
