"""KV cache groups: the sets of layers that share a block table, computed once at start-up.

Layers that keep the same tokens can use the same block ids, each in its own tensor. A model whose layers are all alike
has one group. A model with full attention and sliding windows has several groups, and its windowed layers can free
blocks early. All groups allocate from one pool of equal blocks, so the groups have equally many layers, or some fewer.

Example: 2 full layers and 4 windowed layers (f0 w0 w1 f1 w2 w3) form three groups over two tensors. f0, w0 and w1 share
the first tensor; f1, w2 and w3 share the second. Block 7 belongs to one group at a time.

vLLM: vllm/v1/core/kv_cache_utils.py (`get_kv_cache_groups` and what it calls). Left out: layers that store keys and
values of different shapes.
"""

from collections import defaultdict
from dataclasses import fields

from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheGroupSpec,
    KVCacheTensor,
)

__all__ = [
    "get_bytes_per_block",
    "get_kv_cache_groups",
    "get_kv_cache_tensors",
    "get_max_num_blocks",
    "get_num_blocks_alone",
    "unify_hybrid_kv_cache_specs",
]


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
