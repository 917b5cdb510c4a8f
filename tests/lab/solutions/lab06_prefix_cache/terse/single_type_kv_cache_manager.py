"""All blocks are looked up, and the hit is cut at the first miss."""

from itertools import takewhile


class SingleTypeKVCacheManager:
    def cache_blocks(self, request, num_tokens):
        done, full = self.num_cached_block.setdefault(request.request_id, 0), num_tokens // self.block_size
        if full > done:
            blocks = self.req_to_blocks[request.request_id]
            self.block_pool.cache_full_blocks(blocks, request.block_hashes, done, full, self.kv_cache_group_id)
            self.num_cached_block[request.request_id] = full


class FullAttentionManager:
    @classmethod
    def find_longest_cache_hit(cls, block_hashes, max_length, kv_cache_group_ids, block_pool, kv_cache_spec):
        allowed = block_hashes[: max_length // kv_cache_spec.block_size]
        found = [block_pool.get_cached_block(one, kv_cache_group_ids) for one in allowed]
        rows = list(takewhile(bool, found))
        return tuple(map(list, zip(*rows))) if rows else tuple([] for _ in kv_cache_group_ids)
