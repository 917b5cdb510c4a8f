"""A hit is its first block, and the hit of the rest."""


class SingleTypeKVCacheManager:
    def cache_blocks(self, request, num_tokens):
        before = self.num_cached_block.get(request.request_id, 0)
        after = max(before, num_tokens // self.block_size)
        self.block_pool.cache_full_blocks(
            self.req_to_blocks[request.request_id], request.block_hashes, before, after, self.kv_cache_group_id
        )
        self.num_cached_block[request.request_id] = after


class FullAttentionManager:
    @classmethod
    def find_longest_cache_hit(cls, block_hashes, max_length, kv_cache_group_ids, block_pool, kv_cache_spec):
        def hit_from(index):
            if index == len(block_hashes) or (index + 1) * kv_cache_spec.block_size > max_length:
                return []
            blocks = block_pool.get_cached_block(block_hashes[index], kv_cache_group_ids)
            return [] if blocks is None else [blocks, *hit_from(index + 1)]

        hit = hit_from(0)
        return tuple([blocks[number] for blocks in hit] for number in range(len(kv_cache_group_ids)))
