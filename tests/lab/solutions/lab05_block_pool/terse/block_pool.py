"""The pool, with comprehensions."""


class BlockPool:
    def get_new_blocks(self, num_blocks):
        new = self.free_block_queue.popleft_n(num_blocks)
        for one in new:
            self._maybe_evict_cached_block(one)
            one.ref_cnt += 1
        return new

    def _maybe_evict_cached_block(self, block):
        if (known := block.block_hash) is None:
            return False
        block.block_hash = None
        self.cached_block_hash_to_block.pop(known, block.block_id)
        return True

    def touch(self, blocks):
        real = [one for one in blocks if not one.is_null]
        for one in real:
            if not one.ref_cnt:
                self.free_block_queue.remove(one)
            one.ref_cnt += 1

    def free_blocks(self, ordered_blocks):
        real = [one for one in ordered_blocks if not one.is_null]
        for one in real:
            one.ref_cnt -= 1
        self.free_block_queue.append_n(one for one in real if one.ref_cnt == 0)
