"""Every case has a return of its own."""


class KVCacheManager:
    def get_computed_blocks(self, request):
        if not self.enable_caching:
            return self.empty_kv_cache_blocks, 0
        if request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0
        blocks, hits = self.coordinator.find_longest_cache_hit(request.block_hashes, request.num_tokens - 1)
        stats = self.prefix_cache_stats
        if stats is not None:
            if request.num_preemptions:
                stats.preempted_requests += 1
                stats.preempted_queries += request.num_tokens
                stats.preempted_hits += hits
            else:
                stats.requests += 1
                stats.queries += request.num_tokens
                stats.hits += hits
        if hits == 0:
            return self.empty_kv_cache_blocks, 0
        return KVCacheBlocks(blocks), hits
