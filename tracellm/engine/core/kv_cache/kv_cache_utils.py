"""What names a full block (its hash), and how many blocks the memory can hold.

The hashes are computed when a request arrives and whenever it grows (`Request.block_hashes`); the sizes once, at
start-up.

vLLM: vllm/v1/core/kv_cache_utils.py. Its `KVCacheBlock` and `FreeKVCacheBlockQueue` are in `kv_cache_block.py` here.
The groups of layers are in `kv_cache_groups.py`. Left out: hashes of multimodal inputs, LoRA names and cache salts,
several workers.
"""

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence

from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_block import BlockHash
from tracellm.engine.core.kv_cache.kv_cache_groups import (
    get_bytes_per_block,
    get_kv_cache_groups,
    get_kv_cache_tensors,
    get_max_num_blocks,
    get_num_blocks_alone,
)
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig, KVCacheGroupSpec
from tracellm.engine.core.request import Request

__all__ = [
    "NONE_HASH",
    "check_enough_kv_cache_memory",
    "check_request_fits",
    "estimate_max_model_len",
    "get_kv_cache_config",
    "get_request_block_hasher",
    "hash_block_tokens",
]

NONE_HASH = BlockHash(hashlib.sha256(b"tracellm: no block before this one").digest())
"""Stands for the parent of a first block. vLLM draws it at random (or from PYTHONHASHSEED); a fixed one makes hashes
comparable between runs."""

_MIB = 1024 * 1024


def hash_block_tokens(parent_block_hash: BlockHash | None, curr_block_token_ids: Sequence[int]) -> BlockHash:
    """Name the content of a full block: SHA-256 over its parent's name and its own tokens.

    Keys and values of a token depend on all tokens before it, so two blocks hold the same numbers exactly when they and
    all blocks before them hold the same tokens: that is what the chain of names says.

    Args:
        parent_block_hash: of the block before; None for a first block.
        curr_block_token_ids: its tokens, `block_size` of them.
    """
    digest = hashlib.sha256(NONE_HASH if parent_block_hash is None else parent_block_hash)
    digest.update(array("q", curr_block_token_ids).tobytes())
    return BlockHash(digest.digest())


def get_request_block_hasher(block_size: int) -> Callable[[Request], list[BlockHash]]:
    """A function that gives the hashes of those full blocks of a request that are not in its `block_hashes` yet."""

    def request_block_hasher(request: Request) -> list[BlockHash]:
        known = request.block_hashes
        start, end = len(known) * block_size, request.num_tokens
        if start + block_size > end:
            return []
        parent = known[-1] if known else None
        new_hashes = []
        for index in range(start, end - block_size + 1, block_size):
            parent = hash_block_tokens(parent, request.all_token_ids[index : index + block_size])
            new_hashes.append(parent)
        return new_hashes

    return request_block_hasher


def _memory_setting(vllm_config: VllmConfig) -> str:
    """What decides how much memory there is for the KV cache."""
    if vllm_config.cache_config.kv_cache_memory_bytes is not None:
        return "kv_cache_memory_bytes"
    on_cpu = vllm_config.device_config.device.type == "cpu"
    return "TRACELLM_CPU_KVCACHE_SPACE (in GiB)" if on_cpu else "gpu_memory_utilization"


def _longest_request(groups: list[KVCacheGroupSpec], num_blocks: int, vllm_config: VllmConfig) -> int:
    """The longest request, in tokens, that never holds more than `num_blocks` blocks; at most `max_model_len`."""
    lengths = range(1, vllm_config.model_config.max_model_len + 1)
    return bisect_right(lengths, num_blocks, key=lambda length: get_max_num_blocks(groups, length, vllm_config))


def estimate_max_model_len(vllm_config: VllmConfig, groups: list[KVCacheGroupSpec], available_memory: int) -> int:
    """The longest request, in tokens, that the memory (bytes) can hold; 0 if it cannot hold any.

    vLLM: vllm/v1/core/kv_cache_utils.py::estimate_max_model_len, which does not count the null block.
    """
    return _longest_request(groups, available_memory // get_bytes_per_block(groups) - 1, vllm_config)


def check_enough_kv_cache_memory(
    vllm_config: VllmConfig, groups: list[KVCacheGroupSpec], available_memory: int
) -> None:
    """Check that the memory holds at least one request of the longest length allowed.

    vLLM: vllm/v1/core/kv_cache_utils.py::check_enough_kv_cache_memory, which does not count the null block: with memory
    for exactly `max_model_len` tokens it starts, and a request of that length then waits for ever.

    Args:
        vllm_config: for `max_model_len`.
        groups: the layers.
        available_memory: bytes.

    Raises:
        EngineError: it does not; the message names the largest `max_model_len` that would fit.
    """
    max_model_len = vllm_config.model_config.max_model_len
    num_blocks = get_max_num_blocks(groups, max_model_len, vllm_config) + 1
    needed_memory = num_blocks * get_bytes_per_block(groups)
    if needed_memory <= available_memory:
        return
    largest = estimate_max_model_len(vllm_config, groups, available_memory)
    advice = f"Set max_model_len to {largest} or less, or raise" if largest else "Raise"
    advice = f"{advice} {_memory_setting(vllm_config)}."
    raise EngineError(
        f"The KV cache cannot hold one request of max_model_len={max_model_len} tokens: that takes {num_blocks} blocks "
        f"of {groups[0].kv_cache_spec.block_size} tokens (one of them the null block), {needed_memory / _MIB:.2f} MiB, "
        f"and {max(available_memory, 0) / _MIB:.2f} MiB are available. {advice}"
    )


def get_kv_cache_config(
    vllm_config: VllmConfig, kv_cache_spec: dict[str, AttentionSpec], available_memory: int
) -> KVCacheConfig:
    """Divide the memory into blocks: as many as fit, or `num_gpu_blocks_override`.

    As in vLLM 0.11.1, an override may be too small for a request of `max_model_len` tokens; `check_request_fits` then
    refuses the requests that are too long for it.

    vLLM: vllm/v1/core/kv_cache_utils.py::get_kv_cache_configs (there for several workers).

    Args:
        vllm_config: for `max_model_len` and `num_gpu_blocks_override`.
        kv_cache_spec: what each layer stores, by the layer's name.
        available_memory: bytes.

    Raises:
        EngineError: the memory is too small, the override is, or the layers cannot be grouped.
    """
    groups = get_kv_cache_groups(vllm_config, kv_cache_spec)
    bytes_per_block = get_bytes_per_block(groups)
    num_blocks = vllm_config.cache_config.num_gpu_blocks_override
    if num_blocks is None:
        check_enough_kv_cache_memory(vllm_config, groups, available_memory)
        num_blocks = available_memory // bytes_per_block
    elif num_blocks < 2:
        raise EngineError(
            f"num_gpu_blocks_override={num_blocks} leaves no block for requests, since block 0 is the null block. "
            "Give at least 2."
        )
    elif num_blocks * bytes_per_block > available_memory:
        raise EngineError(
            f"num_gpu_blocks_override={num_blocks} takes {num_blocks * bytes_per_block / _MIB:.2f} MiB of KV cache, "
            f"and {max(available_memory, 0) / _MIB:.2f} MiB are available. Give a smaller number (at most "
            f"{max(available_memory, 0) // bytes_per_block}) or raise {_memory_setting(vllm_config)}."
        )
    return KVCacheConfig(num_blocks, get_kv_cache_tensors(groups, num_blocks), groups)


def check_request_fits(
    request_id: str, num_prompt_tokens: int, max_tokens: int, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig
) -> None:
    """Check that the whole KV cache is enough for one request that runs alone.

    A request that needs more would be preempted and resumed for ever. The last token it generates needs no room:
    nothing is computed from it.

    Args:
        request_id: for the message.
        num_prompt_tokens: length of its prompt.
        max_tokens: the most tokens it may generate.
        vllm_config: for `max_model_len` and what a step may compute.
        kv_cache_config: the blocks, and the groups that each need some.

    Raises:
        InvalidRequestError: it needs more blocks than there are.
    """
    groups, num_gpu_blocks = kv_cache_config.kv_cache_groups, kv_cache_config.num_blocks
    num_tokens = min(num_prompt_tokens + max_tokens, vllm_config.model_config.max_model_len) - 1
    needed, usable = get_num_blocks_alone(groups, num_prompt_tokens, num_tokens, vllm_config), num_gpu_blocks - 1
    if needed > usable:
        raise InvalidRequestError(
            f"Request {request_id} can never run to its end: with a prompt of {num_prompt_tokens} tokens and "
            f"max_tokens={max_tokens} it needs {needed} KV blocks of {groups[0].kv_cache_spec.block_size} tokens; the "
            f"KV cache has {usable} (num_gpu_blocks={num_gpu_blocks}, less the null block). Shorten the prompt or "
            f"lower max_tokens, so that both together are at most {_longest_request(groups, usable, vllm_config) + 1}, "
            "or give the KV cache more blocks."
        )
