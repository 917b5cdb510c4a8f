"""Which blocks each request owns.

It counts the blocks that a request needs, takes them from the pool, and gives them back in the order in which they
should be evicted.

vLLM: vllm/v1/core/single_type_kv_cache_manager.py.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from tracellm.engine.kv_cache.block_pool import BlockPool
from tracellm.engine.kv_cache.kv_cache_block import BlockHash, KVCacheBlock
from tracellm.engine.kv_cache.kv_cache_interface import FullAttentionSpec
from tracellm.engine.request import Request

__all__ = ["FullAttentionManager"]


class FullAttentionManager:
    """The block tables of all requests, for full attention: every token is kept as long as its request lives.

    vLLM: vllm/v1/core/single_type_kv_cache_manager.py::FullAttentionManager (with its base SingleTypeKVCacheManager).
    Left out: the other kinds of attention and what serves only them (`remove_skipped_blocks`), context parallelism.
    """

    def __init__(self, kv_cache_spec: FullAttentionSpec, block_pool: BlockPool) -> None:
        self.block_size = kv_cache_spec.block_size
        self.block_pool = block_pool
        # request id -> its blocks, in the order of its tokens. As in vLLM, asking makes an (empty) entry: a request
        # whose blocks were refused counts in get_num_common_prefix_blocks.
        self.req_to_blocks: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
        # request id -> how many of its blocks are cached; those come first in its list.
        self.num_cached_block: dict[str, int] = {}

    def get_num_blocks_to_allocate(
        self, request_id: str, num_tokens: int, new_computed_blocks: Sequence[KVCacheBlock]
    ) -> int:
        """How many blocks must be free for the request to hold `num_tokens` tokens in all.

        Cached blocks that it would share are not counted, unless they are free themselves: then using them leaves the
        queue shorter too.
        """
        num_required_blocks = -(-num_tokens // self.block_size)
        num_new_blocks = num_required_blocks - len(new_computed_blocks) - len(self.req_to_blocks[request_id])
        if not new_computed_blocks:
            return num_new_blocks
        return num_new_blocks + sum(block.ref_cnt == 0 for block in new_computed_blocks)

    def save_new_computed_blocks(self, request_id: str, new_computed_blocks: Sequence[KVCacheBlock]) -> None:
        """Begin a request's block table with the cached blocks it was found to share."""
        blocks = self.req_to_blocks[request_id]
        assert not blocks, f"request {request_id} has blocks already"
        blocks.extend(new_computed_blocks)
        self.num_cached_block[request_id] = len(new_computed_blocks)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        """Give the request what it lacks to hold `num_tokens` tokens in all; returns only the new blocks."""
        blocks = self.req_to_blocks[request_id]
        num_new_blocks = -(-num_tokens // self.block_size) - len(blocks)
        if num_new_blocks <= 0:
            return []
        new_blocks = self.block_pool.get_new_blocks(num_new_blocks)
        blocks.extend(new_blocks)
        return new_blocks

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Make the request's blocks findable that are full with its first `num_tokens` tokens."""
        num_cached_blocks = self.num_cached_block.get(request.request_id, 0)
        num_full_blocks = num_tokens // self.block_size
        if num_cached_blocks >= num_full_blocks:
            return
        self.block_pool.cache_full_blocks(
            self.req_to_blocks[request.request_id], request.block_hashes, num_cached_blocks, num_full_blocks
        )
        self.num_cached_block[request.request_id] = num_full_blocks

    def free(self, request_id: str) -> None:
        """Give all blocks of the request back, the last one first: a prefix should outlive what follows it."""
        self.block_pool.free_blocks(reversed(self.req_to_blocks.pop(request_id, [])))
        self.num_cached_block.pop(request_id, None)

    def find_longest_cache_hit(self, block_hashes: Sequence[BlockHash], max_length: int) -> list[KVCacheBlock]:
        """The cached blocks that hold the beginning of a request.

        Args:
            block_hashes: the hashes of its full blocks.
            max_length: at most so many tokens.
        """
        computed_blocks = []
        for block_hash in islice(block_hashes, max_length // self.block_size):
            # A hash covers all tokens before it: after the first miss there can be no hit.
            block = self.block_pool.get_cached_block(block_hash)
            if block is None:
                break
            computed_blocks.append(block)
        return computed_blocks

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """How many blocks, from the first, all requests with blocks have in common."""
        num_requests = len(self.req_to_blocks)
        num_common_blocks = 0
        for block in self.req_to_blocks[running_request_id]:
            if block.ref_cnt != num_requests:
                break
            num_common_blocks += 1
        return num_common_blocks
