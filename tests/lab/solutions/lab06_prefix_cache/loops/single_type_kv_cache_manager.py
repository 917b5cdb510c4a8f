"""Blocks are cached one at a time; a hit grows while there is room for one more block."""


class SingleTypeKVCacheManager:
    def cache_blocks(self, request, num_tokens):
        name = request.request_id
        if name not in self.num_cached_block:
            self.num_cached_block[name] = 0
        while (self.num_cached_block[name] + 1) * self.block_size <= num_tokens:
            done = self.num_cached_block[name]
            self.block_pool.cache_full_blocks(
                self.req_to_blocks[name], request.block_hashes, done, done + 1, self.kv_cache_group_id
            )
            self.num_cached_block[name] = done + 1


class FullAttentionManager:
    @classmethod
    def find_longest_cache_hit(cls, block_hashes, max_length, kv_cache_group_ids, block_pool, kv_cache_spec):
        hit = []
        for _ in kv_cache_group_ids:
            hit.append([])
        length = kv_cache_spec.block_size
        for block_hash in block_hashes:
            if length > max_length:
                break
            blocks = block_pool.get_cached_block(block_hash, kv_cache_group_ids)
            if not blocks:
                break
            for i in range(len(hit)):
                hit[i].append(blocks[i])
            length += kv_cache_spec.block_size
        return tuple(hit)
