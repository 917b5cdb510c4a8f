"""A lookup is one function, its statistics another."""


class KVCacheManager:
    def get_computed_blocks(self, request):
        if request.skip_reading_prefix_cache or not self.enable_caching:
            return self.create_kv_cache_blocks(self.empty_kv_cache_blocks.blocks), 0
        blocks, count = self.coordinator.find_longest_cache_hit(request.block_hashes, len(request.all_token_ids) - 1)
        _count(self.prefix_cache_stats, request, count)
        return self.create_kv_cache_blocks(blocks), count


def _count(stats, request, count):
    if stats is not None:
        stats.record(request.num_tokens, count, request.num_preemptions >= 1)
