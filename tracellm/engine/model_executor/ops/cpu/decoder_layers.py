"""All decoder layers of a model in one call of C++ (layers.cpp), as long as no layer is watched or changed.

`Qwen2Model.forward` -> `CpuOps.decoder_layers` -> here, in every step. In a small model, Python takes as long for a
layer's twelve modules as the arithmetic does. The call gives the same bits by the same kernels. It replaces the
modules' code as it is in the source. But a probe, a hook or other code may change the layers between steps. So each
step compares everything that the call depends on with its state at preparation, and prepares the call again after a
change.

vLLM: the graph that torch.compile makes of a model.
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
_RMS_NORM = "model_executor.layers.layernorm.RMSNorm.forward"
_MODULES = {
    "": "model_executor.models.qwen2.Qwen2DecoderLayer.forward",
    "input_layernorm": _RMS_NORM,
    "self_attn": "model_executor.models.qwen2.Qwen2Attention.forward",
    "self_attn.qkv_proj": _LINEAR,
    "self_attn.rotary_emb": "model_executor.layers.rotary_embedding.RotaryEmbedding.forward",
    "self_attn.attn": "model_executor.layers.attention.Attention.forward",
    "self_attn.o_proj": _LINEAR,
    "post_attention_layernorm": _RMS_NORM,
    "mlp": "model_executor.models.qwen2.Qwen2MLP.forward",
    "mlp.gate_up_proj": _LINEAR,
    "mlp.act_fn": "model_executor.layers.activation.SiluAndMul.forward",
    "mlp.down_proj": _LINEAR,
}
"""Modules of a decoder layer, and the functions that layers.cpp replaces."""
_OPS = ("linear", "rms_norm", "fused_add_rms_norm", "rotary_embedding", "silu_and_mul")
_IMPL = {
    "forward": "attention.backend.AttentionImpl.forward",
    "reshape_and_cache": "attention.backends.cpu_attn.CPUAttentionBackendImpl.reshape_and_cache",
    "paged_attention": "attention.backends.cpu_attn.CPUAttentionBackendImpl.paged_attention",
}


class DecoderLayers:
    """Arguments of the call for one model's layers, and the guards that keep them valid; used by `CpuOps`.

    Holds the contents of the `ModuleList`, not the list: `CpuOps`, which the layers hold, drops it with the model.
    """

    kernel: str | None
    """Suffix of the functions for the model's dtypes, or None if the call cannot replace the layers."""

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

    def _guard_values(self) -> tuple[list[Any], ...]:
        """Return the classes of the modules, their functions, and the addresses of their weights."""
        return (
            [type(module) for module in self.modules],
            [getattr(cls, name) for cls, name in self.functions],
            [tensor.data_ptr() for tensor in self.weights],
        )

    def _prepare(self) -> None:
        """Collect what the guards compare, and build the arguments if the layers are as in the source."""
        layers: list[Any] = list(self.layers.values())  # attributes of modules have no types
        self.modules: list[Any] = list(dict.fromkeys(module for layer in layers for module in layer.modules()))
        owners = [self.ops, *self.modules, *(module.impl for module in self.modules if hasattr(module, "impl"))]
        self.functions = [
            (cls, name)
            for cls in dict.fromkeys(map(type, owners))
            for name in ("forward", *_OPS, *_IMPL)
            if hasattr(cls, name)
        ]
        hooks = [nn_module._global_forward_hooks, nn_module._global_forward_pre_hooks]
        hooks += [table for module in self.modules for table in (module._forward_hooks, module._forward_pre_hooks)]
        weights = [table for module in self.modules for table in (module._parameters, module._buffers) if table]
        self.kernel = None
        if layers and not any(hooks) and all(_is_known(layer, self.ops) for layer in layers):
            self.kernel = _find_kernel(layers)
        if self.kernel is not None:
            self.arguments = b"".join(map(_pack_layer, layers))
        tensors = [tensor for table in weights for tensor in table.values() if tensor is not None]
        self.weights = [] if self.kernel is None else tensors  # weights for oneDNN have no address
        self.guard_values = self._guard_values()
        submodules = [self.layers, *(module._modules for module in self.modules if module._modules)]
        self.tables = [*map(vars, owners), *hooks, *weights, *submodules]
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


def _is_known(layer: Any, ops: Any) -> bool:
    """Return whether a layer's modules, and the functions that they call, are those that layers.cpp replaces."""
    modules: dict[str, Any] = dict(layer.named_modules())
    if modules.keys() != _MODULES.keys() or any(getattr(module, "ops", ops) is not ops for module in modules.values()):
        return False
    functions = [(module.forward, _MODULES[path]) for path, module in modules.items()]
    functions += [(getattr(ops, name), f"model_executor.ops.cpu_ops.CpuOps.{name}") for name in _OPS]
    functions += [(getattr(layer.self_attn.attn.impl, name), known) for name, known in _IMPL.items()]
    return all(_source_name(function) == f"tracellm.engine.{known}" for function, known in functions)


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


def _find_kernel(layers: list[Any]) -> str | None:
    """Return the suffix of the function for the layers' dtypes, or None if no function computes all layers."""
    kernels = {getattr(linear.weight, "kernel", None) for layer in layers for linear in _linears(layer)}
    tensors = [tensor for layer in layers for tensor in (*layer.parameters(), *layer.buffers())]
    tensors += [layer.self_attn.attn.kv_cache for layer in layers]
    dtypes = {DTYPES.get(tensor.dtype) for tensor in tensors if not hasattr(tensor, "kernel")}
    kernel = kernels.pop()
    if kernels or kernel is None or dtypes != {kernel.partition("_")[0]}:
        return None
    attentions = [(layer.self_attn.rotary_emb, layer.self_attn.attn.impl) for layer in layers]
    is_plain = all(rope.rotary_dim == impl.head_size and not impl.logits_soft_cap for rope, impl in attentions)
    return kernel if is_plain and all(_sizes(layer) == _sizes(layers[0]) for layer in layers) else None


def _pack_layer(layer: Any) -> bytes:
    """Return `struct Layer` of layers.cpp."""
    attention, norms = layer.self_attn.attn, (layer.input_layernorm, layer.post_attention_layernorm)
    tensors = [*(norm.weight for norm in norms), layer.self_attn.rotary_emb.cos_sin_cache, *attention.kv_cache]
    tensors += [tensor for linear in _linears(layer) for tensor in (linear.weight, linear.bias)]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    numbers = (*(norm.variance_epsilon for norm in norms), attention.impl.scale)
    return struct.pack("7q13P3f4x", *_sizes(layer), attention.impl.sliding_window or 0, *addresses, *numbers)
