"""Comprehensions and slices."""


class BlockPool:
    def get_cached_block(self, block_hash, kv_cache_group_ids):
        keys = [make_block_hash_with_group_id(block_hash, group_id) for group_id in kv_cache_group_ids]
        blocks = list(map(self.cached_block_hash_to_block.get_one_block, keys))
        return blocks if all(blocks) else None

    def cache_full_blocks(self, blocks, block_hashes, num_cached_blocks, num_full_blocks, kv_cache_group_id):
        new = slice(num_cached_blocks, num_full_blocks)
        for block, one in zip(blocks[new], block_hashes[new]):
            if not block.is_null:
                block.block_hash = key = make_block_hash_with_group_id(one, kv_cache_group_id)
                self.cached_block_hash_to_block.insert(key, block)
