"""KV cache blocks, the queue of free blocks, block hashes, groups of layers, and the blocks that fit into memory.

A `KVCacheBlock` is bookkeeping: an id, a reference count and a hash. The keys and values are in the workers' tensors at
that id. Hashes are computed when a request arrives and when it grows (`Request.block_hashes`), groups and sizes at
start-up.

vLLM: vllm/v1/core/kv_cache_utils.py. Left out: hashes of LoRA names; layers whose keys and values differ in shape.
"""

import hashlib
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NewType

from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
)
from tracellm.engine.core.request import Request

__all__ = [
    "NONE_HASH",
    "BlockHash",
    "BlockHashWithGroupId",
    "FreeKVCacheBlockQueue",
    "KVCacheBlock",
    "check_enough_kv_cache_memory",
    "check_request_fits",
    "estimate_max_model_len",
    "generate_block_hash_extra_keys",
    "get_block_hash",
    "get_bytes_per_block",
    "get_kv_cache_config_from_groups",
    "get_kv_cache_configs",
    "get_kv_cache_groups",
    "get_max_num_blocks",
    "get_num_blocks_alone",
    "get_request_block_hasher",
    "hash_block_tokens",
    "make_block_hash_with_group_id",
    "project_kv_cache_groups_to_worker",
]

BlockHash = NewType("BlockHash", bytes)
"""Hash of a full block's tokens and of all tokens before them."""

BlockHashWithGroupId = NewType("BlockHashWithGroupId", bytes)
"""Hash of a full block's tokens, and the KV cache group whose keys and values it holds."""


def make_block_hash_with_group_id(block_hash: BlockHash, group_id: int) -> BlockHashWithGroupId:
    """Combine a block hash and a group id."""
    return BlockHashWithGroupId(block_hash + group_id.to_bytes(4, "big"))


def get_block_hash(block_hash: BlockHashWithGroupId) -> BlockHash:
    """Return the block hash without the group id."""
    return BlockHash(block_hash[:-4])


@dataclass(eq=False, slots=True)
class KVCacheBlock:
    """A block of the KV cache. Compared by identity.

    vLLM: vllm/v1/core/kv_cache_utils.py::KVCacheBlock.
    """

    block_id: int
    """Index in the workers' tensors, 0 to `num_blocks - 1`."""
    ref_cnt: int = 0
    """Number of requests that use it. At 0 it is in the free queue, with its content, until it is allocated again."""
    is_null: bool = False
    """True for `BlockPool.null_block`, a placeholder that is never free and has no reference count."""
    block_hash: BlockHashWithGroupId | None = None
    """Set while the block is full and in the prefix cache."""
    prev_free_block: "KVCacheBlock | None" = None
    next_free_block: "KVCacheBlock | None" = None

    def __repr__(self) -> str:
        # Without the neighbours, which would print theirs, and so on.
        return f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt}, block_hash={self.block_hash!r})"


class FreeKVCacheBlockQueue:
    """A doubly linked list of the free blocks, in the order in which they are allocated and evicted.

    The least recently used block comes first. The blocks of one request are freed in reverse order, so its last blocks
    are evicted before the prefix that they continue. A linked list, unlike a deque, removes a block from the middle in
    O(1), as a cache hit needs.

    vLLM: vllm/v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue. Left out: `append` and `popleft` of one block.
    """

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        # With two sentinels, every real block has neighbours on both sides.
        self._head = KVCacheBlock(block_id=-1)
        self._tail = KVCacheBlock(block_id=-1)
        self._head.next_free_block = self._tail
        self._tail.prev_free_block = self._head
        self.append_n(blocks)

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Remove and return the first `n` blocks.

        Raises:
            ValueError: there are fewer than `n`.
        """
        if n > self.num_free_blocks:
            raise ValueError(f"{n} blocks wanted, {self.num_free_blocks} are free")
        popped = []
        block = self._head.next_free_block
        for _ in range(n):
            assert block is not None
            popped.append(block)
            following = block.next_free_block
            block.prev_free_block = block.next_free_block = None
            block = following
        assert block is not None
        self._head.next_free_block = block
        block.prev_free_block = self._head
        self.num_free_blocks -= n
        return popped

    def remove(self, block: KVCacheBlock) -> None:
        """Remove a block, wherever it is in the queue.

        Raises:
            ValueError: it is not in the queue.
        """
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise ValueError(f"{block} is not in the free queue")
        before.next_free_block = after
        after.prev_free_block = before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Append blocks, in the given order."""
        last = self._tail.prev_free_block
        assert last is not None
        for block in blocks:
            last.next_free_block = block
            block.prev_free_block = last
            last = block
            self.num_free_blocks += 1
        last.next_free_block = self._tail
        self._tail.prev_free_block = last

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """Return the free blocks in queue order."""
        blocks = []
        block = self._head.next_free_block
        while block is not None and block is not self._tail:
            blocks.append(block)
            block = block.next_free_block
        return blocks


NONE_HASH = BlockHash(hashlib.sha256(b"tracellm: no block before this one").digest())
"""Parent hash of a first block. It is fixed, so hashes are comparable between runs; vLLM draws it at random or from
PYTHONHASHSEED."""

_MIB = 1024 * 1024


def _gen_mm_extra_hash_keys(
    request: Request, start_token_idx: int, end_token_idx: int, start_mm_idx: int
) -> tuple[list[str], int]:
    """See `generate_block_hash_extra_keys`."""
    extra_keys: list[str] = []
    for index in range(start_mm_idx, len(request.mm_features)):
        feature = request.mm_features[index]
        start = feature.mm_position.offset
        end = start + feature.mm_position.length
        if start >= end_token_idx:
            return extra_keys, index
        if end > start_token_idx:
            extra_keys.append(feature.identifier)
        if end > end_token_idx:
            return extra_keys, index
    return extra_keys, len(request.mm_features)


def generate_block_hash_extra_keys(
    request: Request, start_token_idx: int, end_token_idx: int, start_mm_idx: int
) -> tuple[tuple[str, ...] | None, int]:
    """Return what distinguishes a block besides its tokens: the identifiers of the items that overlap it, and the salt.

    All placeholder tokens of images are alike, so the tokens of two prompts can be equal and their images not. The
    request's `cache_salt` is in the first block alone: the hashes of all later blocks depend on it.

    vLLM: vllm/v1/core/kv_cache_utils.py::generate_block_hash_extra_keys. In a block that generated tokens complete,
    vLLM 0.11.1 regards only the last item of the prompt, even if that ends right before the block.

    Args:
        request: the request.
        start_token_idx: first token of the block.
        end_token_idx: first token after it.
        start_mm_idx: index of the first item that can overlap the block.

    Returns:
        The identifiers and the salt, or None without any; and `start_mm_idx` of the next block.
    """
    mm_extra_keys, new_start_mm_idx = _gen_mm_extra_hash_keys(request, start_token_idx, end_token_idx, start_mm_idx)
    cache_salt_keys = [request.cache_salt] if start_token_idx == 0 and request.cache_salt else []
    return (*mm_extra_keys, *cache_salt_keys) or None, new_start_mm_idx


def hash_block_tokens(
    parent_block_hash: BlockHash | None,
    curr_block_token_ids: Sequence[int],
    extra_keys: tuple[str, ...] | None = None,
) -> BlockHash:
    """Return the SHA-256 of the parent's hash, the block's own tokens, and its extra keys.

    Keys and values of a token depend on all tokens before it. Two blocks hold the same numbers exactly if they and all
    blocks before them hold the same tokens, and the chain of hashes expresses that.

    Args:
        parent_block_hash: hash of the preceding block; None for a first block.
        curr_block_token_ids: the `block_size` tokens of the block.
        extra_keys: from `generate_block_hash_extra_keys`; None for a block of text.
    """
    digest = hashlib.sha256(NONE_HASH if parent_block_hash is None else parent_block_hash)
    digest.update(array("q", curr_block_token_ids).tobytes())
    for key in extra_keys or ():
        digest.update(hashlib.sha256(key.encode()).digest())
    return BlockHash(digest.digest())


def get_request_block_hasher(block_size: int) -> Callable[[Request], list[BlockHash]]:
    """Return a function that computes the hashes of a request's full blocks that `block_hashes` lacks."""

    def request_block_hasher(request: Request) -> list[BlockHash]:
        hashes = request.block_hashes
        start, end = len(hashes) * block_size, request.num_tokens
        if start + block_size > end:
            return []
        parent = hashes[-1] if hashes else None
        new_hashes, mm_idx = [], 0
        for index in range(start, end - block_size + 1, block_size):
            keys, mm_idx = generate_block_hash_extra_keys(request, index, index + block_size, mm_idx)
            parent = hash_block_tokens(parent, request.all_token_ids[index : index + block_size], keys)
            new_hashes.append(parent)
        return new_hashes

    return request_block_hasher


# -- groups of layers -------------------------------------------------------------------------------------------------
#
# Layers that keep the same tokens can use the same block ids, each in its own tensor. A model whose layers are all
# alike has one group. A model with full attention and sliding windows has several groups, and its windowed layers can
# free blocks early. All groups allocate from one pool of equal blocks, so the groups have equally many layers, or some
# fewer.
#
# Example: 2 full layers and 4 windowed layers (f0 w0 w1 f1 w2 w3) form three groups over two tensors. f0, w0 and w1
# share the first tensor; f1, w2 and w3 share the second. Block 7 belongs to one group at a time.


def unify_hybrid_kv_cache_specs(kv_cache_spec: dict[str, AttentionSpec]) -> dict[str, AttentionSpec]:
    """Treat all layers as full attention if some are; windowed layers then keep blocks that they no longer use.

    A model without full attention is unchanged.

    vLLM: vllm/v1/core/kv_cache_utils.py::unify_hybrid_kv_cache_specs.
    """
    if not any(isinstance(spec, FullAttentionSpec) for spec in kv_cache_spec.values()):
        return kv_cache_spec
    return {
        name: FullAttentionSpec(spec.block_size, spec.num_kv_heads, spec.head_size, spec.dtype)
        for name, spec in kv_cache_spec.items()
    }


def get_kv_cache_groups(vllm_config: VllmConfig, kv_cache_spec: dict[str, AttentionSpec]) -> list[KVCacheGroupSpec]:
    """Divide the layers into groups.

    Each kind of attention is divided into groups of at most as many layers as the rarest kind has. Layer i of a kind
    goes to group i modulo the number of its groups, as in vLLM.

    Args:
        vllm_config: for `disable_hybrid_kv_cache_manager`.
        kv_cache_spec: cache layout of each layer, by name.

    Raises:
        EngineError: the layers store keys and values of different shapes, or mix windows of several lengths.
    """
    shape = [field.name for field in fields(AttentionSpec)]
    if len({tuple(getattr(spec, name) for name in shape) for spec in kv_cache_spec.values()}) > 1:
        raise EngineError(
            "The model's attention layers store keys and values of different shapes, and tracellm runs only models "
            f"whose layers are alike: {', '.join(f'{name}: {spec}' for name, spec in kv_cache_spec.items())}."
        )
    if vllm_config.scheduler_config.disable_hybrid_kv_cache_manager:
        kv_cache_spec = unify_hybrid_kv_cache_specs(kv_cache_spec)
    layers_of: defaultdict[AttentionSpec, list[str]] = defaultdict(list)
    for name, spec in kv_cache_spec.items():
        layers_of[spec].append(name)
    others = [spec for spec in layers_of if not isinstance(spec, FullAttentionSpec)]
    if len(others) > 1 and vllm_config.cache_config.enable_prefix_caching:
        raise EngineError(
            "The model's attention layers have sliding windows of several lengths, and the prefix cache supports only "
            f"one: {', '.join(str(spec) for spec in others)}. Give enable_prefix_caching=False."
        )
    group_size = min(len(names) for names in layers_of.values())
    groups = []
    for spec, names in layers_of.items():
        num_groups = -(-len(names) // group_size)
        groups += [KVCacheGroupSpec(names[index::num_groups], spec) for index in range(num_groups)]
    return groups


def get_kv_cache_tensors(groups: list[KVCacheGroupSpec], num_blocks: int) -> list[KVCacheTensor]:
    """Return the tensors to allocate; the i-th layer of each group uses the i-th tensor."""
    size = groups[0].kv_cache_spec.page_size_bytes * num_blocks
    return [
        KVCacheTensor(size, [group.layer_names[i] for group in groups if i < len(group.layer_names)])
        for i in range(_num_tensors(groups))
    ]


def _num_tensors(groups: list[KVCacheGroupSpec]) -> int:
    return max(len(group.layer_names) for group in groups)


def get_bytes_per_block(groups: list[KVCacheGroupSpec]) -> int:
    """Return the bytes of one block in all tensors together."""
    return groups[0].kv_cache_spec.page_size_bytes * _num_tensors(groups)


def get_max_num_blocks(groups: list[KVCacheGroupSpec], num_tokens: int, vllm_config: VllmConfig) -> int:
    """Return the most blocks that a request of `num_tokens` tokens holds at once, over all groups."""
    budget = vllm_config.scheduler_config.max_num_batched_tokens
    return sum(group.kv_cache_spec.max_num_blocks(num_tokens, budget) for group in groups)


def get_num_blocks_alone(
    groups: list[KVCacheGroupSpec], num_prompt_tokens: int, num_tokens: int, vllm_config: VllmConfig
) -> int:
    """Return the most blocks, over all groups, that a request holds at once if it runs alone.

    With a short prompt or small chunks, windowed layers need fewer blocks than `get_max_num_blocks` returns.

    Args:
        groups: the groups of layers.
        num_prompt_tokens: length of its prompt.
        num_tokens: prompt and output tokens with stored keys and values.
        vllm_config: for the token limits of a step.
    """
    scheduler_config = vllm_config.scheduler_config
    budget = scheduler_config.max_num_batched_tokens
    chunk = min(budget, scheduler_config.long_prefill_token_threshold or budget)
    steps = [(begin, min(chunk, num_prompt_tokens - begin)) for begin in range(0, num_prompt_tokens, chunk)]
    # Decoding, one token per step. A request never holds fewer blocks one block later, so the last block is enough.
    block_size = groups[0].kv_cache_spec.block_size
    steps += [(token, 1) for token in range(max(num_prompt_tokens, num_tokens - block_size), num_tokens)]
    return max(sum(group.kv_cache_spec.num_blocks_in_step(*step) for group in groups) for step in steps)


# -- the size of the cache --------------------------------------------------------------------------------------------


def _memory_setting(vllm_config: VllmConfig) -> str:
    """Return the setting that limits the memory of the KV cache."""
    if vllm_config.cache_config.kv_cache_memory_bytes is not None:
        return "kv_cache_memory_bytes"
    on_cpu = vllm_config.device_config.device.type == "cpu"
    return "TRACELLM_CPU_KVCACHE_SPACE (in GiB)" if on_cpu else "gpu_memory_utilization"


def _longest_request(groups: list[KVCacheGroupSpec], num_blocks: int, vllm_config: VllmConfig) -> int:
    """Return the length in tokens of the longest request that fits into `num_blocks`; at most `max_model_len`."""
    lengths = range(1, vllm_config.model_config.max_model_len + 1)
    return bisect_right(lengths, num_blocks, key=lambda length: get_max_num_blocks(groups, length, vllm_config))


def estimate_max_model_len(vllm_config: VllmConfig, groups: list[KVCacheGroupSpec], available_memory: int) -> int:
    """Return the length in tokens of the longest request that the memory (bytes) can hold, or 0.

    vLLM: vllm/v1/core/kv_cache_utils.py::estimate_max_model_len, which does not count the null block.
    """
    return _longest_request(groups, available_memory // get_bytes_per_block(groups) - 1, vllm_config)


def check_enough_kv_cache_memory(
    vllm_config: VllmConfig, groups: list[KVCacheGroupSpec], available_memory: int
) -> None:
    """Check that the memory can hold one request of `max_model_len` tokens.

    vLLM: vllm/v1/core/kv_cache_utils.py::check_enough_kv_cache_memory, which does not count the null block. With memory
    for exactly `max_model_len` tokens vLLM starts, and a request of that length waits forever.

    Args:
        vllm_config: for `max_model_len`.
        groups: the groups of layers.
        available_memory: bytes.

    Raises:
        EngineError: the memory is too small; the message gives the largest `max_model_len` that fits.
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


def get_kv_cache_configs(
    vllm_config: VllmConfig, kv_cache_specs: list[dict[str, AttentionSpec]], available_memory: list[int]
) -> list[KVCacheConfig]:
    """Return the KV cache of each worker, from its layers and its available bytes: as many blocks as fit into each.

    The groups are those of the whole model. A pipeline stage has its own layers of each group, perhaps none.

    vLLM: vllm/v1/core/kv_cache_utils.py::get_kv_cache_configs.

    Raises:
        EngineError: see `get_kv_cache_groups` and `get_kv_cache_config_from_groups`.
    """
    merged = {name: spec for specs in kv_cache_specs for name, spec in specs.items()}
    groups = get_kv_cache_groups(vllm_config, merged)
    configs = []
    for specs, memory in zip(kv_cache_specs, available_memory, strict=True):
        own = project_kv_cache_groups_to_worker(groups, specs)
        configs.append(get_kv_cache_config_from_groups(vllm_config, own, memory))
    fewest = min(config.num_blocks for config in configs)
    return [
        KVCacheConfig(fewest, get_kv_cache_tensors(config.kv_cache_groups, fewest), config.kv_cache_groups)
        for config in configs
    ]


def project_kv_cache_groups_to_worker(
    groups: list[KVCacheGroupSpec], kv_cache_spec: dict[str, AttentionSpec]
) -> list[KVCacheGroupSpec]:
    """Return the groups with only those layers that a worker has."""
    return [
        KVCacheGroupSpec([name for name in group.layer_names if name in kv_cache_spec], group.kv_cache_spec)
        for group in groups
    ]


def get_kv_cache_config_from_groups(
    vllm_config: VllmConfig, groups: list[KVCacheGroupSpec], available_memory: int
) -> KVCacheConfig:
    """Divide the memory into as many blocks as fit, or into `num_gpu_blocks_override`.

    As in vLLM 0.11.1, the override may be too small for a request of `max_model_len` tokens; `check_request_fits` then
    rejects longer requests.

    vLLM: vllm/v1/core/kv_cache_utils.py::get_kv_cache_config_from_groups.

    Args:
        vllm_config: for `max_model_len` and `num_gpu_blocks_override`.
        groups: the worker's layers, in groups.
        available_memory: bytes.

    Raises:
        EngineError: the memory or the override is too small.
    """
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
    """Check that the KV cache can hold one request that runs alone.

    A larger request would be preempted and resumed forever. The last generated token needs no slot, because nothing is
    computed from it.

    Args:
        request_id: for the message.
        num_prompt_tokens: length of its prompt.
        max_tokens: the most tokens it may generate; 0 for pooling.
        vllm_config: for `max_model_len` and the token limits of a step.
        kv_cache_config: the number of blocks, and the groups that share them.

    Raises:
        InvalidRequestError: it needs more blocks than there are.
    """
    groups, num_gpu_blocks = kv_cache_config.kv_cache_groups, kv_cache_config.num_blocks
    num_tokens = min(num_prompt_tokens + max_tokens, vllm_config.model_config.max_model_len) - 1
    num_tokens = max(num_tokens, num_prompt_tokens)
    needed, usable = get_num_blocks_alone(groups, num_prompt_tokens, num_tokens, vllm_config), num_gpu_blocks - 1
    if needed > usable:
        raise InvalidRequestError(
            f"Request {request_id} can never run to its end: with a prompt of {num_prompt_tokens} tokens and "
            f"max_tokens={max_tokens} it needs {needed} KV cache blocks of {groups[0].kv_cache_spec.block_size} "
            f"tokens; the KV cache has {usable} (num_gpu_blocks={num_gpu_blocks}, less the null block). Shorten the "
            "prompt or lower max_tokens, so that both together are at most "
            f"{_longest_request(groups, usable, vllm_config) + 1}, or give the KV cache more blocks."
        )
