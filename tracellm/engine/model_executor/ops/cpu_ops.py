"""Operations on a CPU, by the fastest code available:

- C++ kernels compiled for this CPU (cpu/), where a compiler is found.
- For matrix products in bfloat16, oneDNN with weights in its own layout, on CPUs with instructions for it
  (AVX512-BF16, AMX).
- The reference (torch_ops.py) where there is no compiler.

In a request's life: every layer of every step. vLLM: csrc/cpu/*.cpp for norms, rotary embedding and activations;
vllm/model_executor/layers/utils.py::dispatch_cpu_unquantized_gemm for linear layers.
"""

from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from tracellm.engine.attention.backend import AttentionMetadata
from tracellm.engine.distributed.parallel_state import get_tensor_model_parallel_world_size
from tracellm.engine.model_executor.ops.cpu.decoder_layers import DecoderLayers
from tracellm.engine.model_executor.ops.cpu.native import DTYPES, load
from tracellm.engine.model_executor.ops.torch_ops import TorchOps

__all__ = ["CpuOps", "PackedWeight"]

_NARROW = (torch.bfloat16, torch.float16)
_TYPICAL_ROWS = 16
"""Batch size for which oneDNN chooses the layout of weights: that of a decode step."""

_TILE_ROWS = 16
"""Rows of a tile of AMX."""


class PackedWeight(nn.Parameter):
    """Weight [output_size, input_size] in the layout that a kernel reads."""

    output_size: int
    input_size: int
    x_dtype: torch.dtype
    """Dtype of the layer and its input. The weight's own may have fewer bits: see `_narrow`."""
    kernel: str | None
    """Suffix of the compiled functions for these dtypes; None: oneDNN multiplies."""


class CpuOps(TorchOps):
    """`Ops` for a CPU; see `Ops` for what each operation computes."""

    name = "cpu"

    def __init__(self) -> None:
        self._library = load().library
        # Weak keys: the layers hold this object, which must not keep them alive.
        self._decoder_layers: WeakKeyDictionary[nn.ModuleList, DecoderLayers] = WeakKeyDictionary()

    def prepare_weights(self, model: nn.Module) -> None:
        """Replace the weights of all linear layers by packed ones.

        A weight that other layers share, such as a tied input embedding, stays there unpacked.
        """
        for module in model.modules():
            if getattr(module, "ops", None) is self:
                weight = getattr(module, "weight", None)
                if weight is not None and weight.dim() == 2 and (packed := self._pack(weight.data)) is not None:
                    module.weight = packed

    def _pack(self, weight: Tensor) -> PackedWeight | None:
        """Return the weight [m, n] in a kernel's layout, or None if there is none for its dtype."""
        output_size, input_size = weight.shape
        x_dtype, kernel = weight.dtype, None
        if _onednn_is_faster(weight.dtype):
            data = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _TYPICAL_ROWS)
        elif self._library is not None and weight.dtype in DTYPES:
            weight = _narrow(weight).contiguous()
            kernel = "_".join(dict.fromkeys((DTYPES[x_dtype], DTYPES[weight.dtype])))
            data = weight.new_empty(self._kernel("packed_size", weight)(output_size, input_size))
            self._kernel("pack_weight", weight)(
                weight.data_ptr(), data.data_ptr(), output_size, input_size, torch.get_num_threads()
            )
        else:
            return None
        packed = PackedWeight(data, requires_grad=False)
        packed.output_size, packed.input_size, packed.x_dtype, packed.kernel = output_size, input_size, x_dtype, kernel
        return packed

    def _kernel(self, name: str, *tensors: Tensor) -> Any:
        """Return the compiled function for the dtype of all tensors, or None."""
        dtype = tensors[0].dtype
        if self._library is None or dtype not in DTYPES or any(tensor.dtype != dtype for tensor in tensors):
            return None
        return getattr(self._library, f"{name}_{DTYPES[dtype]}")

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `Ops.linear`."""
        if not isinstance(weight, PackedWeight):
            return super().linear(x, weight, bias)
        inputs, outputs = weight.input_size, weight.output_size
        if x.dtype != weight.x_dtype or x.shape[-1] != inputs:
            raise TypeError(f"linear: x is {x.dtype} {list(x.shape)}, the weight {weight.x_dtype} {[outputs, inputs]}")
        if weight.kernel is None:
            return _onednn_linear(x, weight, bias)
        x = x.contiguous()
        y = x.new_empty((*x.shape[:-1], outputs))
        getattr(self._library, f"linear_{weight.kernel}")(
            x.data_ptr(),
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            y.data_ptr(),
            x.numel() // inputs,
            outputs,
            inputs,
            torch.get_num_threads(),
        )
        return y

    def decoder_layers(
        self, layers: nn.ModuleList, positions: Tensor, hidden_states: Tensor, metadata: AttentionMetadata | None
    ) -> tuple[Tensor, Tensor] | None:
        """See `Ops.decoder_layers`."""
        if self._library is None or metadata is None or positions.dtype != torch.int64 or positions.dim() != 1:
            return None
        if get_tensor_model_parallel_world_size() > 1:  # the layers' sums over workers are in Python
            return None
        if (decoder_layers := self._decoder_layers.get(layers)) is None:
            decoder_layers = self._decoder_layers[layers] = DecoderLayers(layers, self)
        if not decoder_layers.can_run():
            return None
        return decoder_layers.run(self._library, positions.contiguous(), hidden_states, metadata)

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.rms_norm`."""
        kernel = self._kernel("rms_norm", x, weight)
        return super().rms_norm(x, weight, epsilon) if kernel is None else _norm(kernel, x, weight, epsilon)

    def gemma_rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.gemma_rms_norm`."""
        kernel = self._kernel("gemma_rms_norm", x, weight)
        return super().gemma_rms_norm(x, weight, epsilon) if kernel is None else _norm(kernel, x, weight, epsilon)

    def fused_add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """See `Ops.fused_add_rms_norm`."""
        kernel = self._kernel("add_rms_norm", x, residual, weight)
        if kernel is None:
            return super().fused_add_rms_norm(x, residual, weight, epsilon)
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        size = x.shape[-1]
        kernel(
            x.data_ptr(),
            residual.data_ptr(),
            weight.data_ptr(),
            y.data_ptr(),
            total.data_ptr(),
            x.numel() // size,
            size,
            epsilon,
            torch.get_num_threads(),
        )
        return y, total

    def rotary_embedding(
        self, positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Ops.rotary_embedding`."""
        kernel = self._kernel("rotary", query, key, cos_sin_cache)
        if kernel is None or positions.dtype != torch.int64:
            return super().rotary_embedding(positions, query, key, cos_sin_cache)
        query, key, positions = _contiguous_heads(query), _contiguous_heads(key), positions.contiguous()
        rotated_query, rotated_key = query.new_empty(query.shape), key.new_empty(key.shape)
        kernel(
            positions.data_ptr(),
            query.data_ptr(),
            key.data_ptr(),
            cos_sin_cache.data_ptr(),
            rotated_query.data_ptr(),
            rotated_key.data_ptr(),
            *query.shape[:2],
            *key.shape[1:],
            *query.stride()[:2],
            *key.stride()[:2],
            torch.get_num_threads(),
        )
        return rotated_query, rotated_key

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.silu_and_mul`."""
        kernel = self._kernel("silu_and_mul", x)
        return super().silu_and_mul(x) if kernel is None else _act_and_mul(kernel, x)

    def gelu_tanh_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.gelu_tanh_and_mul`."""
        kernel = self._kernel("gelu_tanh_and_mul", x)
        return super().gelu_tanh_and_mul(x) if kernel is None else _act_and_mul(kernel, x)


def _narrow(weight: Tensor) -> Tensor:
    """Return a float32 weight in 16 bits if that is exact, as after loading a 16-bit checkpoint."""
    if weight.dtype == torch.float32 and weight.shape[1] % 2 == 0:  # pairs: see linear.cpp
        for dtype in _NARROW:
            if torch.equal(weight[:1].to(dtype).float(), weight[:1]):  # one row excludes most float32 checkpoints
                narrow = weight.to(dtype)
                if torch.equal(narrow.float(), weight):
                    return narrow
    return weight


def _norm(kernel: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    size = x.shape[-1]
    kernel(
        x.data_ptr(),
        weight.data_ptr(),
        y.data_ptr(),
        x.numel() // size,
        size,
        epsilon,
        torch.get_num_threads(),
    )
    return y


def _act_and_mul(kernel: Any, x: Tensor) -> Tensor:
    x = x.contiguous()
    size = x.shape[-1] // 2
    y = x.new_empty((*x.shape[:-1], size))
    kernel(x.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], size, torch.get_num_threads())
    return y


def _contiguous_heads(x: Tensor) -> Tensor:
    """Return x [T, heads, D] with the elements of each head contiguous; heads and tokens may be apart."""
    return x if x.stride(2) == 1 else x.contiguous()


def _onednn_linear(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """Return the product by oneDNN's kernel for this number of rows, or for the next larger one that has a kernel.

    oneDNN makes a kernel for each number of rows, in 0.5 to 6 ms. vLLM pads batches to the sizes of its CUDA graphs.
    """
    rows = x.numel() // weight.input_size
    padding = _rows_of_kernel(rows) - rows
    padded = nn.functional.pad(x.reshape(rows, -1), (0, 0, 0, padding)) if padding else x
    result: Tensor = torch.ops.mkldnn._linear_pointwise(padded, weight, bias, "none", [], "")
    return result[:rows].view(*x.shape[:-1], -1) if padding else result


def _rows_of_kernel(rows: int) -> int:
    """Return the number of rows of the kernel for so many.

    It is the same up to 16, the rows of an AMX tile; then a multiple of 16, of which at most eight are from 2^n to
    2^(n+1).
    """
    step = max(_TILE_ROWS, 1 << (rows - 1).bit_length() >> 4)
    return rows if rows <= _TILE_ROWS else -(-rows // step) * step


@cache
def _onednn_is_faster(dtype: torch.dtype) -> bool:
    """Return whether the CPU has instructions for bfloat16 products, which oneDNN uses and our kernel does not."""
    has = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(dtype == torch.bfloat16 and has and torch.ops.mkldnn._is_mkldnn_bf16_supported())
