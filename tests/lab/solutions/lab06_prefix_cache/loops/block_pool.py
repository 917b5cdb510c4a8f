"""Step by step."""


class BlockPool:
    def get_cached_block(self, block_hash, kv_cache_group_ids):
        found = []
        for i in kv_cache_group_ids:
            block = self.cached_block_hash_to_block.get_one_block(make_block_hash_with_group_id(block_hash, i))
            if block is not None:
                found.append(block)
        if len(found) < len(kv_cache_group_ids):
            return None
        return found

    def cache_full_blocks(self, blocks, block_hashes, num_cached_blocks, num_full_blocks, kv_cache_group_id):
        i = num_cached_blocks
        while i < num_full_blocks:
            if not blocks[i].is_null:
                key = make_block_hash_with_group_id(block_hashes[i], kv_cache_group_id)
                blocks[i].block_hash = key
                self.cached_block_hash_to_block.insert(key, blocks[i])
            i += 1
