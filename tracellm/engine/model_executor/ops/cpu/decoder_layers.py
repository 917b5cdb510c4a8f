"""All decoder layers of a model in one call of C++ (layers.cpp), as long as no layer is watched or changed.

`Qwen2Model.forward` -> `CpuOps.decoder_layers` -> here, in every step. In a small model, Python takes as long for a
layer's twelve modules as the arithmetic does. The call gives the same bits by the same kernels. It stands in for the
modules' code as the source has it; a probe, a hook or other code may change the layers between steps. So each step
compares everything that the call depends on with what it was prepared for, and prepares anew after a change.

vLLM: the graph that torch.compile makes of a model.
"""

import ctypes
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
_LINEARS = ("qkv", "output", "gate_up", "down")
_SIZES = ("hidden", "intermediate", "query_heads", "kv_heads", "size", "block_size")


class _Layer(ctypes.Structure):  # as in layers.cpp
    _fields_ = [
        *[(name, ctypes.c_int64) for name in (*_SIZES, "window")],
        *[(name, ctypes.c_void_p) for name in ("input_norm", "post_norm", "cos_sin_cache", "key_cache", "value_cache")],
        *[
            (f"{name}{part}", ctypes.c_void_p)
            for name in ("qkv", "output", "gate_up", "down")
            for part in ("", "_bias")
        ],
        *[(name, ctypes.c_float) for name in ("input_epsilon", "post_epsilon", "scale")],
    ]


class _Batch(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("tokens", "sequences", "table_stride")],
        *[(name, ctypes.c_void_p) for name in ("positions", "slots", "query_start", "lengths", "table")],
    ]


class DecoderLayers:
    """Arguments of the call for one model's layers, and the guards that keep them valid; used by `CpuOps`.

    Holds the contents of the `ModuleList`, not the list: `CpuOps`, which the layers hold, drops it with the model.
    """

    kernel: str | None
    """Suffix of the functions for the model's dtypes, or None where the call cannot stand in for the layers."""

    def __init__(self, layers: nn.ModuleList, ops: Any) -> None:
        self.layers = layers._modules
        self.ops = ops
        self._prepare()

    def can_run(self) -> bool:
        """Return whether the call can stand in for the layers as they are now."""
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
            [tensor.data_ptr() for weights in self.weights for tensor in weights.values() if tensor is not None],
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
            self.rows = (_Layer * len(layers))(*map(_make_row, layers))
            if any(getattr(row, name) != getattr(self.rows[0], name) for row in self.rows for name in _SIZES):
                self.kernel = None
        self.weights = [] if self.kernel is None else weights  # weights for oneDNN have no address
        self.guard_values = self._guard_values()
        self.tables = [*map(vars, owners), *hooks, *weights, self.layers, *(module._modules for module in self.modules)]
        self.contents = [dict(table) for table in self.tables]  # holds the objects, whose addresses cannot be reused

    def run(
        self, library: ctypes.CDLL, positions: Tensor, hidden_states: Tensor, metadata: AttentionMetadata
    ) -> tuple[Tensor, Tensor]:
        """Return the last layer's output and the residual stream, [T, hidden]; call only after `can_run` is true."""
        tokens, table = hidden_states.shape[0], metadata.block_table
        x = hidden_states.clone(memory_format=torch.contiguous_format)  # a hook may have kept the embeddings
        residual = torch.empty_like(x)
        scratch = x.new_empty(library.layers_scratch_size(self.rows, tokens))
        batch = _Batch(
            tokens=tokens,
            sequences=len(metadata.seq_lens_cpu),
            table_stride=table.stride(0),
            positions=positions.data_ptr(),
            slots=metadata.slot_mapping.data_ptr(),
            query_start=metadata.query_start_loc.data_ptr(),
            lengths=metadata.seq_lens.data_ptr(),
            table=table.data_ptr(),
        )
        getattr(library, f"decoder_layers_{self.kernel}")(
            self.rows,
            len(self.rows),
            ctypes.byref(batch),
            x.data_ptr(),
            residual.data_ptr(),
            scratch.data_ptr(),
            torch.get_num_threads(),
        )
        return x, residual


def _name_in_source(function: Any) -> str:
    """Return the full name of a function as its source has it, whatever wraps it claims to be."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f"{function.__module__}.{code.co_qualname}".removeprefix("tracellm.engine.")


def _is_known(layer: Any, ops: Any) -> bool:
    """Return whether a layer consists of the modules that layers.cpp replaces, and calls `ops` in its own kernels."""
    modules: dict[str, Any] = dict(layer.named_modules())
    if modules.keys() != _MODULES.keys():
        return False
    functions = [(module.forward, _MODULES[path]) for path, module in modules.items()]
    functions += [(getattr(ops, name), f"model_executor.ops.cpu_ops.CpuOps.{name}") for name in _OPS]
    functions += [(getattr(layer.self_attn.attn.impl, name), known) for name, known in _IMPL.items()]
    return all(_name_in_source(function) == known for function, known in functions) and all(
        getattr(module, "ops", ops) is ops for module in modules.values()
    )


def _linears(layer: Any) -> dict[str, Any]:
    attention, mlp = layer.self_attn, layer.mlp
    return {"qkv": attention.qkv_proj, "output": attention.o_proj, "gate_up": mlp.gate_up_proj, "down": mlp.down_proj}


def _find_kernel(layers: list[Any]) -> str | None:
    """Return the suffix of the functions for the layers' dtypes, or None if no function computes all layers."""
    kernels = {getattr(linear.weight, "kernel", None) for layer in layers for linear in _linears(layer).values()}
    tensors = [tensor for layer in layers for tensor in (*layer.parameters(), *layer.buffers())]
    tensors += [layer.self_attn.attn.kv_cache for layer in layers]
    dtypes = {DTYPES.get(tensor.dtype) for tensor in tensors if not hasattr(tensor, "kernel")}
    if len(kernels) > 1 or None in kernels or dtypes != {next(iter(kernels)).partition("_")[0]}:
        return None
    attentions = [(layer.self_attn.rotary_emb, layer.self_attn.attn.impl) for layer in layers]
    plain = all(rope.rotary_dim == impl.head_size and not impl.logits_soft_cap for rope, impl in attentions)
    return kernels.pop() if plain else None


def _make_row(layer: Any) -> _Layer:
    attention, impl = layer.self_attn.attn, layer.self_attn.attn.impl
    first, second = layer.input_layernorm, layer.post_attention_layernorm
    tensors = {"input_norm": first.weight, "post_norm": second.weight}
    tensors |= {"cos_sin_cache": layer.self_attn.rotary_emb.cos_sin_cache}
    tensors |= dict(zip(("key_cache", "value_cache"), attention.kv_cache, strict=True))
    for name, linear in _linears(layer).items():
        tensors |= {name: linear.weight, f"{name}_bias": linear.bias}
    return _Layer(
        hidden=layer.self_attn.o_proj.weight.output_size,
        intermediate=layer.mlp.down_proj.weight.input_size,
        query_heads=impl.num_heads,
        kv_heads=impl.num_kv_heads,
        size=impl.head_size,
        block_size=attention.kv_cache.shape[2],
        window=impl.sliding_window or 0,
        input_epsilon=first.variance_epsilon,
        post_epsilon=second.variance_epsilon,
        scale=impl.scale,
        **{name: None if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()},
    )
