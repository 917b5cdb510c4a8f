"""The paged KV cache: which block of memory holds the keys and values of which tokens, and which requests own it.

Read in this order:

1. `kv_cache_interface.py`: the layout of the cache.
2. `kv_cache_utils.py`: a block, its hash, the queue of free blocks, the layers that share a block table, and the number
   of blocks that fit into memory.
3. `block_pool.py`: all blocks: allocate, free, find by hash, evict.
4. `single_type_kv_cache_manager.py`, `kv_cache_coordinator.py`: the blocks of each request.
5. `kv_cache_manager.py`: the interface to the scheduler.

vLLM: vllm/v1/core/ (kv_cache_*.py, block_pool.py) and vllm/v1/kv_cache_interface.py.
"""
