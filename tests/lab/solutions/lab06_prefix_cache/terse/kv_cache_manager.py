"""One lookup, or none."""


class KVCacheManager:
    def get_computed_blocks(self, request):
        if self.enable_caching and not request.skip_reading_prefix_cache:
            total = request.num_tokens
            blocks, hits = self.coordinator.find_longest_cache_hit(request.block_hashes, total - 1)
            if self.prefix_cache_stats:
                self.prefix_cache_stats.record(total, hits, bool(request.num_preemptions))
            return self.create_kv_cache_blocks(blocks), hits
        return self.empty_kv_cache_blocks, 0
