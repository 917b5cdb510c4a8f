"""The pool, one statement after the other."""


class BlockPool:
    def get_new_blocks(self, num_blocks):
        blocks = self.free_block_queue.popleft_n(num_blocks)
        for i in range(len(blocks)):
            self._maybe_evict_cached_block(blocks[i])
        for i in range(len(blocks)):
            blocks[i].ref_cnt = 1
        return blocks

    def _maybe_evict_cached_block(self, block):
        if block.block_hash is not None:
            key = block.block_hash
            self.cached_block_hash_to_block.pop(key, block.block_id)
            block.block_hash = None
            return True
        else:
            return False

    def touch(self, blocks):
        for block in blocks:
            if block.is_null:
                pass
            elif block.ref_cnt > 0:
                block.ref_cnt = block.ref_cnt + 1
            else:
                self.free_block_queue.remove(block)
                block.ref_cnt = 1

    def free_blocks(self, ordered_blocks):
        unused = []
        for block in ordered_blocks:
            if not block.is_null:
                block.ref_cnt = block.ref_cnt - 1
                if block.ref_cnt <= 0:
                    unused.append(block)
        self.free_block_queue.append_n(unused)
