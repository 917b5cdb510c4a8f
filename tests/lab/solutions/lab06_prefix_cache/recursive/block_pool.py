"""The first group, then the others."""


class BlockPool:
    def get_cached_block(self, block_hash, kv_cache_group_ids):
        groups = list(kv_cache_group_ids)
        if not groups:
            return []
        others = self.get_cached_block(block_hash, groups[1:])
        own = self.cached_block_hash_to_block.get_one_block(make_block_hash_with_group_id(block_hash, groups[0]))
        return None if own is None or others is None else [own] + others

    def cache_full_blocks(self, blocks, block_hashes, num_cached_blocks, num_full_blocks, kv_cache_group_id):
        if num_cached_blocks >= num_full_blocks:
            return
        block = blocks[num_cached_blocks]
        if block is not self.null_block:
            block.block_hash = make_block_hash_with_group_id(block_hashes[num_cached_blocks], kv_cache_group_id)
            self.cached_block_hash_to_block.insert(block.block_hash, block)
        self.cache_full_blocks(blocks, block_hashes, num_cached_blocks + 1, num_full_blocks, kv_cache_group_id)
