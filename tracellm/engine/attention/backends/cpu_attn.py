"""Attention by C++ kernels compiled for this CPU (model_executor/ops/cpu/attention.cpp).

The kernels read keys and values from their blocks, and divide the work themselves: the builder plans nothing.
vLLM: vllm/v1/attention/backends/cpu_attn.py::CPUAttentionBackend.
"""

from ctypes import byref
from typing import Any

import torch
from torch import Tensor

from tracellm.engine.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)
from tracellm.engine.model_executor.ops.cpu.native import DTYPES, AttentionShape, load

__all__ = ["CPUAttentionBackend", "CPUAttentionBackendImpl", "CPUAttentionMetadataBuilder"]


class CPUAttentionMetadataBuilder(AttentionMetadataBuilder):
    """Passes the metadata on as it is."""

    def build(self, common: CommonAttentionMetadata) -> AttentionMetadata:
        """See `AttentionMetadataBuilder.build`."""
        return AttentionMetadata(**vars(common))


class CPUAttentionBackendImpl(AttentionImpl):
    """Attention of one layer by the compiled kernels."""

    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `AttentionImpl.reshape_and_cache`."""
        key, value, element_size = _contiguous_tokens(key), _contiguous_tokens(value), key.element_size()
        _library().reshape_and_cache(
            key.data_ptr(),
            value.data_ptr(),
            key_cache.data_ptr(),
            value_cache.data_ptr(),
            slot_mapping.data_ptr(),
            len(slot_mapping),
            self.num_kv_heads * self.head_size * element_size,
            key.stride(0) * element_size,
            value.stride(0) * element_size,
        )

    def paged_attention(
        self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """See `AttentionImpl.paged_attention`."""
        query = query if query.stride(2) == 1 else query.contiguous()
        output = query.new_empty(query.shape)
        shape = AttentionShape(
            sequences=len(metadata.seq_lens_cpu),
            query_heads=self.num_heads,
            kv_heads=self.num_kv_heads,
            size=self.head_size,
            block_size=key_cache.shape[1],
            table_stride=metadata.block_table.stride(0),
            query_token_stride=query.stride(0),
            query_head_stride=query.stride(1),
            window=self.sliding_window or 0,
            scale=self.scale,
            cap=self.logits_soft_cap or 0,
        )
        getattr(_library(), f"paged_attention_{DTYPES[query.dtype]}")(
            query.data_ptr(),
            key_cache.data_ptr(),
            value_cache.data_ptr(),
            metadata.query_start_loc.data_ptr(),
            metadata.seq_lens.data_ptr(),
            metadata.block_table.data_ptr(),
            output.data_ptr(),
            byref(shape),
            torch.get_num_threads(),
        )
        return output


def _library() -> Any:
    """Return the compiled kernels; the selector takes this backend only where they exist."""
    return load().library


def _contiguous_tokens(x: Tensor) -> Tensor:
    """Return x [T, K, D] with the elements of each token contiguous; the tokens may be apart."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


class CPUAttentionBackend(AttentionBackend):
    """Attention by C++ kernels on a CPU."""

    name = "cpu"
    impl_cls = CPUAttentionBackendImpl
    builder_cls = CPUAttentionMetadataBuilder
