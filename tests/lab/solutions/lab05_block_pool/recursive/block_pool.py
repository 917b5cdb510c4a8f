"""A pool that evicts first and counts last."""


class BlockPool:
    def get_new_blocks(self, num_blocks):
        if num_blocks > self.get_num_free_blocks():
            raise ValueError(f"cannot allocate {num_blocks} blocks")
        result = []
        while num_blocks:
            (block,) = self.free_block_queue.popleft_n(1)
            if block.block_hash:
                self._maybe_evict_cached_block(block)
            block.ref_cnt = 1
            result.append(block)
            num_blocks -= 1
        return result

    def _maybe_evict_cached_block(self, block):
        was_cached = block.block_hash is not None
        if was_cached:
            self.cached_block_hash_to_block.pop(block.block_hash, block.block_id)
        block.block_hash = None
        return was_cached

    def touch(self, blocks):
        for block in blocks:
            if block is self.null_block:
                continue
            block.ref_cnt += 1
            if block.ref_cnt == 1:
                self.free_block_queue.remove(block)

    def free_blocks(self, ordered_blocks):
        for block in ordered_blocks:
            if block is self.null_block:
                continue
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                self.free_block_queue.append_n([block])
