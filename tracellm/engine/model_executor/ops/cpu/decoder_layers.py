"""All decoder layers of a model in one call of C++ (layers.cpp), unless a layer is probed, hooked or modified.

`Qwen2Model.forward` -> `CpuOps.decoder_layers` -> here, in every step. In a small model, Python takes as long for a
layer's twelve modules as the arithmetic does. The call runs the same kernels, with bit-identical results. A probe, a
hook or other code may change the layers between steps. So each step checks everything that the prepared call depends
on, and prepares the call again after a change. vLLM: the graph that torch.compile makes of a model.
"""

import ctypes
import struct
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as nn_module

from tracellm.engine.attention.backend import AttentionMetadata
from tracellm.engine.model_executor.ops.cpu.native import DTYPES

__all__ = ["DecoderLayers"]

_LINEAR = "model_executor.layers.linear.ReplicatedLinear.forward"
_ROW_LINEAR = "model_executor.layers.linear.RowParallelLinear.forward"
_RMS_NORM = "model_executor.layers.layernorm.RMSNorm.forward"
_MODULES = {
    "": "model_executor.models.qwen2.Qwen2DecoderLayer.forward",
    "input_layernorm": _RMS_NORM,
    "self_attn": "model_executor.models.qwen2.Qwen2Attention.forward",
    "self_attn.qkv_proj": _LINEAR,
    "self_attn.rotary_emb": "model_executor.layers.rotary_embedding.RotaryEmbedding.forward",
    "self_attn.attn": "model_executor.layers.attention.Attention.forward",
    "self_attn.o_proj": _ROW_LINEAR,
    "post_attention_layernorm": _RMS_NORM,
    "mlp": "model_executor.models.qwen2.Qwen2MLP.forward",
    "mlp.gate_up_proj": _LINEAR,
    "mlp.act_fn": "model_executor.layers.activation.SiluAndMul.forward",
    "mlp.down_proj": _ROW_LINEAR,
}
"""Modules of a decoder layer, and the functions that layers.cpp replaces."""
_OPS = ("linear", "rms_norm", "fused_add_rms_norm", "rotary_embedding", "silu_and_mul")
_IMPL = {
    "forward": "attention.backend.AttentionImpl.forward",
    "reshape_and_cache": "attention.backends.cpu_attn.CPUAttentionBackendImpl.reshape_and_cache",
    "paged_attention": "attention.backends.cpu_attn.CPUAttentionBackendImpl.paged_attention",
}
_GLOBAL_HOOKS = (nn_module._global_forward_hooks, nn_module._global_forward_pre_hooks)
_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_parameters", "_buffers", "_modules")
"""Dictionaries of a module that change in place."""


class DecoderLayers:
    """Arguments of the call for one model's layers, and the guards that keep them valid; used by `CpuOps`.

    Holds the contents of the `ModuleList`, not the list: `CpuOps`, which the layers hold, drops it with the model.
    """

    def __init__(self, layers: nn.ModuleList, ops: Any) -> None:
        self.layers = layers._modules
        self.ops = ops
        self._prepare()

    def can_run(self) -> bool:
        """Return whether the call can replace the layers as they are now."""
        try:
            unchanged = self._guard_values() == self.guard_values and self.tables == self.contents
        except RuntimeError:  # a tensor has been replaced: tensors do not compare to one truth value
            unchanged = False
        if not unchanged:
            self._prepare()
        return self.kernel is not None

    def _guard_values(self) -> list[Any]:
        """Return the classes of the modules and the addresses of the weights."""
        return [*map(type, self.modules), *(tensor.data_ptr() for tensor in self.weights)]

    def _prepare(self) -> None:
        """Build the arguments if the layers are as in the source, and collect what the guards compare."""
        layers: list[Any] = list(self.layers.values())  # attributes of modules have no types
        self.kernel = _find_kernel(layers, self.ops)
        self.arguments = b"" if self.kernel is None else b"".join(map(_pack_layer, layers))
        self.modules = list(dict.fromkeys(module for layer in layers for module in layer.modules()))
        tensors = dict.fromkeys(tensor for layer in layers for tensor in (*layer.parameters(), *layer.buffers()))
        self.weights = [] if self.kernel is None else list(tensors)  # weights for oneDNN have no address
        self.guard_values = self._guard_values()
        owners = [self.ops, *self.modules, *(module.impl for module in self.modules if hasattr(module, "impl"))]
        classes = dict.fromkeys(cls for owner in owners for cls in type(owner).__mro__[:-1])
        self.tables: list[Any] = [self.layers, *_GLOBAL_HOOKS, *map(vars, owners), *map(vars, classes)]
        self.tables += [getattr(module, name) for module in self.modules for name in _TABLES]
        self.contents = [dict(table) for table in self.tables]  # holds the objects, whose addresses cannot be reused

    def run(
        self, library: ctypes.CDLL, positions: Tensor, hidden_states: Tensor, metadata: AttentionMetadata
    ) -> tuple[Tensor, Tensor]:
        """Return the last layer's output and the residual stream, [T, hidden]; call only after `can_run` is true."""
        tokens, table = hidden_states.shape[0], metadata.block_table
        x = hidden_states.clone(memory_format=torch.contiguous_format)  # a hook may have kept the embeddings
        residual = torch.empty_like(x)
        scratch = x.new_empty(library.layers_scratch_size(self.arguments, tokens))
        tensors = (positions, metadata.slot_mapping, metadata.query_start_loc, metadata.seq_lens, table)
        batch = struct.pack(
            "3q5P", tokens, len(metadata.seq_lens_cpu), table.stride(0), *(tensor.data_ptr() for tensor in tensors)
        )
        buffers = (x.data_ptr(), residual.data_ptr(), scratch.data_ptr())
        function = getattr(library, f"decoder_layers_{self.kernel}")
        function(self.arguments, len(self.layers), batch, *buffers, torch.get_num_threads())
        return x, residual


def _find_kernel(layers: list[Any], ops: Any) -> str | None:
    """Return the suffix of the function for the layers' dtypes, or None if no function can replace all layers."""
    if not layers or any(_GLOBAL_HOOKS) or not all(_is_known(layer, ops) for layer in layers):
        return None
    kernels = {getattr(linear.weight, "kernel", None) for layer in layers for linear in _linears(layer)}
    tensors = [tensor for layer in layers for tensor in (*layer.parameters(), *layer.buffers())]
    tensors += [layer.self_attn.attn.kv_cache for layer in layers]
    dtypes = {(tensor.device.type, DTYPES.get(getattr(tensor, "x_dtype", tensor.dtype))) for tensor in tensors}
    kernel = kernels.pop()
    if kernels or kernel is None or dtypes != {("cpu", kernel.partition("_")[0])}:
        return None
    return kernel if all(_sizes(layer) == _sizes(layers[0]) for layer in layers) else None


def _is_known(layer: Any, ops: Any) -> bool:
    """Return whether a layer has the modules and calls the functions that layers.cpp replaces, without hooks."""
    modules: dict[str, Any] = dict(layer.named_modules())
    if modules.keys() != _MODULES.keys():
        return False
    rope, impl = layer.self_attn.rotary_emb, layer.self_attn.attn.impl
    functions = [(module.forward, _MODULES[path]) for path, module in modules.items()]
    functions += [(getattr(ops, name), f"model_executor.ops.cpu_ops.CpuOps.{name}") for name in _OPS]
    functions += [(getattr(impl, name), known) for name, known in _IMPL.items()]
    return (
        all(_source_name(function) == f"tracellm.engine.{known}" for function, known in functions)
        and all(getattr(module, "ops", ops) is ops for module in modules.values())
        and not any(module._forward_hooks or module._forward_pre_hooks for module in modules.values())
        and rope.rotary_dim == impl.head_size
        and not impl.logits_soft_cap
    )


def _source_name(function: Any) -> str | None:
    """Return the full name of a function's code; a wrapper has the name of what it wraps, but its own code."""
    code = getattr(function, "__code__", None)
    return None if code is None else f"{function.__module__}.{code.co_qualname}"


def _linears(layer: Any) -> list[Any]:
    return [layer.self_attn.qkv_proj, layer.self_attn.o_proj, layer.mlp.gate_up_proj, layer.mlp.down_proj]


def _sizes(layer: Any) -> list[int]:
    """Return hidden and intermediate size, query heads, key/value heads, head size, block size."""
    impl, kv_cache = layer.self_attn.attn.impl, layer.self_attn.attn.kv_cache
    hidden, intermediate = layer.self_attn.o_proj.weight.output_size, layer.mlp.down_proj.weight.input_size
    return [hidden, intermediate, impl.num_heads, impl.num_kv_heads, impl.head_size, kv_cache.shape[2]]


def _pack_layer(layer: Any) -> bytes:
    """Return `struct Layer` of layers.cpp."""
    attention, norms = layer.self_attn.attn, (layer.input_layernorm, layer.post_attention_layernorm)
    tensors = [*(norm.weight for norm in norms), layer.self_attn.rotary_emb.cos_sin_cache, *attention.kv_cache]
    tensors += [tensor for linear in _linears(layer) for tensor in (linear.weight, linear.bias)]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    numbers = (*(norm.variance_epsilon for norm in norms), attention.impl.scale)
    return struct.pack("7q13P3f4x", *_sizes(layer), attention.impl.sliding_window or 0, *addresses, *numbers)
