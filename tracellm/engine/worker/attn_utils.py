"""The attention layers' part of start-up: what each stores, the builders of its metadata, and its KV cache.

In a request's life: before the first, in `GPUModelRunner.initialize_kv_cache`.

vLLM: methods of vllm/v1/worker/gpu_model_runner.py; later versions have vllm/v1/worker/gpu/attn_utils.py.
"""

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tracellm.engine.attention.backend import AttentionMetadataBuilder
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig
from tracellm.engine.model_executor.layers.attention import Attention
from tracellm.engine.worker.memory import explain_out_of_memory

__all__ = ["get_kv_cache_spec", "init_attn_backend", "init_kv_cache"]


def get_kv_cache_spec(model: nn.Module, vllm_config: VllmConfig) -> dict[str, AttentionSpec]:
    """Return what each attention layer stores per token, by the layer's name."""
    block_size, dtype = vllm_config.cache_config.block_size, vllm_config.model_config.dtype
    return {name: layer.get_kv_cache_spec(block_size, dtype) for name, layer in _attention_layers(model).items()}


def init_attn_backend(model: nn.Module, kv_cache_config: KVCacheConfig) -> dict[int, AttentionMetadataBuilder]:
    """Return the metadata builder of each KV cache group of which there are layers here, by the group's index."""
    layers, builders = _attention_layers(model), {}
    for index, group in enumerate(kv_cache_config.kv_cache_groups):
        group_layers = [layers[name] for name in group.layer_names]
        if group_layers:
            builder_cls = group_layers[0].attn_backend.get_builder_cls()
            builders[index] = builder_cls(group.kv_cache_spec, [layer.impl for layer in group_layers])
    return builders


def init_kv_cache(model: nn.Module, kv_cache_config: KVCacheConfig, device: torch.device) -> list[Tensor]:
    """Make the KV caches, [2, blocks, block_size, KV heads, head size], and give each layer its own.

    All values are zero, so that a step that reads unwritten blocks, because of a bug, is reproducible.
    Layers of different groups that share a tensor use different blocks of it.

    Raises:
        EngineError: the memory cannot hold them.
    """
    layers, kv_caches = _attention_layers(model), []
    spec = kv_cache_config.kv_cache_groups[0].kv_cache_spec
    shape = (2, kv_cache_config.num_blocks, spec.block_size, spec.num_kv_heads, spec.head_size)
    for tensor in kv_cache_config.kv_cache_tensors:
        with explain_out_of_memory(
            f"a KV cache of {kv_cache_config.num_blocks} blocks",
            "lower `kv_cache_memory_bytes`, `num_gpu_blocks_override` or `gpu_memory_utilization`",
        ):
            kv_caches.append(_zeros(shape, spec.dtype, device))
        for name in tensor.shared_by:
            layers[name].kv_cache = kv_caches[-1]
    return kv_caches


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros; on the CPU the system provides a page at its first use, at the latest (`prefault_kv_cache`)."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(*shape)


def _attention_layers(model: nn.Module) -> dict[str, Attention]:
    return {module.layer_name: module for module in model.modules() if isinstance(module, Attention)}
