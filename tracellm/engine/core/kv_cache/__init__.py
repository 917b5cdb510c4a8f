"""The paged KV cache: which block of memory holds the keys and values of which tokens, and for whom.

Read in this order:

1. `kv_cache_interface.py`: the shape of the cache, as the workers are told it.
2. `kv_cache_groups.py`: which layers share a block table.
3. `kv_cache_utils.py`: how many blocks the memory can hold; the hash that names a full block.
4. `kv_cache_block.py`: one block, and the queue of free blocks.
5. `block_pool.py`: all blocks: hand out, take back, find by hash, evict.
6. `single_type_kv_cache_manager.py`, `kv_cache_coordinator.py`: which blocks each request owns.
7. `kv_cache_manager.py`: the one door that the scheduler uses.

vLLM: vllm/v1/core/ (kv_cache_*.py, block_pool.py) and vllm/v1/kv_cache_interface.py.
"""
