"""All decoder layers of a model in one call of the kernels (layers.cpp), while nobody watches them one by one.

`Qwen2Model.forward` -> `CpuOps.decoder_layers` -> here, in every step. A layer of a small model is 0.1 ms of
arithmetic, and its ten modules take Python as long. The call does what they do, by the same kernels, with the same
bits. It is made only if each module of the layers is one that layers.cpp knows, just as its file has it. A recording
that shows layers or kernels replaces their functions, and a hook or a subclass changes what a module does: then the
modules are called.

vLLM: the graph that torch.compile makes of a model.
"""

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tracellm.engine.ops.interface import AttentionMetadata

__all__ = ["DecoderLayers"]

_LINEARS = {
    "qkv": "self_attn.qkv_proj",
    "output": "self_attn.o_proj",
    "gate_up": "mlp.gate_up_proj",
    "down": "mlp.down_proj",
}
"""What layers.cpp calls the linear layers, and where a decoder layer has them."""
_FORWARDS = {
    "": "Qwen2DecoderLayer.forward",
    "self_attn": "Qwen2Attention.forward",
    "self_attn.rotary_emb": "RotaryEmbedding.forward",
    "self_attn.attn": "Attention.forward",
    "mlp": "Qwen2MLP.forward",
    "mlp.act_fn": "SiluAndMul.forward",
    "input_layernorm": "RMSNorm.forward",
    "post_attention_layernorm": "RMSNorm.forward",
    **dict.fromkeys(_LINEARS.values(), "ReplicatedLinear.forward"),
}
"""The parts of a decoder layer that layers.cpp knows, and the function that does their work."""
_OPERATIONS = (
    "linear", "rms_norm", "fused_add_rms_norm", "rotary_embedding", "silu_and_mul", "reshape_and_cache",
    "paged_attention",
)  # fmt: skip
_POINTERS = (
    "input_norm", "qkv", "qkv_bias", "output", "output_bias", "post_norm", "gate_up", "gate_up_bias", "down",
    "down_bias", "key_cache", "value_cache",
)  # fmt: skip
_KEPT_TOKENS = 256
"""Scratch memory for steps of up to so many tokens is kept; larger ones, which are prompts, make their own."""


class _Layer(ctypes.Structure):
    _fields_ = [*[(name, ctypes.c_void_p) for name in _POINTERS], ("window", ctypes.c_int64)]


class _Stack(ctypes.Structure):
    _fields_ = [
        *[
            (name, ctypes.c_int64)
            for name in ("layers", "hidden", "intermediate", "query_heads", "kv_heads", "size", "block_size")
        ],
        *[(name, ctypes.c_float) for name in ("input_epsilon", "post_epsilon", "scale")],
        ("cos_sin_cache", ctypes.c_void_p),
    ]


class _Batch(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("tokens", "sequences", "table_stride")],
        *[(name, ctypes.c_void_p) for name in ("positions", "slots", "query_start", "lengths", "table")],
    ]


class DecoderLayers:
    """The layers of one model: whether one call can do for them, and the addresses and sizes that it wants."""

    def __init__(self, layers: nn.ModuleList, ops: type, is_packed: Callable[[Tensor], bool]) -> None:
        """`ops` is the class whose operations the layers call; `is_packed`: is a weight laid out for the kernels?"""
        self.layers = layers
        self.modules = list(layers.modules())
        self.functions = _functions(layers, ops)
        self.attentions: list[Any] = []
        self.kv_caches: list[Tensor] = []
        self.kept: Tensor | None = None
        self._is_packed = is_packed
        self._fits: bool | None = None  # not looked at yet

    def can_run(self) -> bool:
        """The layers are as layers.cpp knows them, and nobody watches or changes what they do, be it not any more."""
        if self._fits is False or not self._is_known():
            return False
        if self._fits is None:
            self._fits = _fits(self.layers, self._is_packed)
            if self._fits:
                self._take_down()
        return self._fits

    def _is_known(self) -> bool:
        return (
            self.functions is not None
            and all(_name_in_source(getattr(owner, name)) == known for owner, name, known in self.functions)
            and not any(one._forward_hooks or one._forward_pre_hooks or "forward" in vars(one) for one in self.modules)
        )

    def _take_down(self) -> None:
        layers: list[Any] = list(self.layers)  # attributes of modules have no types
        first, attention = layers[0], layers[0].self_attn.attn
        self.attentions = [layer.self_attn.attn for layer in layers]
        self.dtype: torch.dtype = first.input_layernorm.weight.dtype
        self.table = (_Layer * len(layers))()
        for entry, layer in zip(self.table, layers, strict=True):
            _fill(entry, layer)
        self.stack = _Stack(
            layers=len(layers),
            hidden=first.self_attn.o_proj.weight.output_size,
            intermediate=first.mlp.down_proj.weight.input_size,
            query_heads=attention.num_heads,
            kv_heads=attention.num_kv_heads,
            size=attention.head_size,
            input_epsilon=first.input_layernorm.variance_epsilon,
            post_epsilon=first.post_attention_layernorm.variance_epsilon,
            scale=attention.scale,
            cos_sin_cache=first.self_attn.rotary_emb.cos_sin_cache.data_ptr(),
        )

    def run(
        self, library: ctypes.CDLL, positions: Tensor, hidden_states: Tensor, metadata: AttentionMetadata
    ) -> tuple[Tensor, Tensor]:
        """The last layer's output and the residual stream, [T, hidden] both; `hidden_states` [T, hidden] is used up."""
        self._see_caches()
        tokens = hidden_states.shape[0]
        residual, scratch = torch.empty_like(hidden_states), self._scratch(library, tokens)
        table = metadata.block_table
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
        function = library.decoder_layers_bf16 if self.dtype == torch.bfloat16 else library.decoder_layers_f32
        function(
            ctypes.byref(self.stack),
            self.table,
            ctypes.byref(batch),
            hidden_states.data_ptr(),
            residual.data_ptr(),
            scratch.data_ptr(),
            torch.get_num_threads(),
        )
        return hidden_states, residual

    def _see_caches(self) -> None:
        """The model runner hands each layer its KV cache after the weights, and may hand it another one."""
        kv_caches = [attention.kv_cache for attention in self.attentions]
        if len(self.kv_caches) == len(kv_caches) and all(map(_is, kv_caches, self.kv_caches)):
            return
        self.kv_caches = kv_caches
        self.stack.block_size = kv_caches[0].shape[2]
        for entry, kv_cache in zip(self.table, kv_caches, strict=True):
            entry.key_cache, entry.value_cache = kv_cache[0].data_ptr(), kv_cache[1].data_ptr()

    def _scratch(self, library: ctypes.CDLL, tokens: int) -> Tensor:
        if tokens > _KEPT_TOKENS:
            size = library.layers_scratch_size(ctypes.byref(self.stack), tokens)
            return torch.empty(size, dtype=self.dtype)
        if self.kept is None:
            size = library.layers_scratch_size(ctypes.byref(self.stack), _KEPT_TOKENS)
            self.kept = torch.empty(size, dtype=self.dtype)
        return self.kept


def _fill(entry: _Layer, layer: Any) -> None:
    """One layer's addresses."""
    for name, path in _LINEARS.items():
        module = layer.get_submodule(path)
        setattr(entry, name, module.weight.data_ptr())
        setattr(entry, f"{name}_bias", None if module.bias is None else module.bias.data_ptr())
    entry.input_norm = layer.input_layernorm.weight.data_ptr()
    entry.post_norm = layer.post_attention_layernorm.weight.data_ptr()
    entry.window = layer.self_attn.attn.sliding_window or 0


def _is(one: object, other: object) -> bool:
    return one is other


def _fits(layers: Iterable[Any], is_packed: Callable[[Tensor], bool]) -> bool:
    """Have all layers packed weights, one dtype, heads that are rotated as a whole, and scores that are left alone?"""
    for layer in layers:
        rotary, dtype = layer.self_attn.rotary_emb, layer.input_layernorm.weight.dtype
        if not (
            all(is_packed(layer.get_submodule(path).weight) for path in _LINEARS.values())
            and rotary.rotary_dim == rotary.head_size
            and layer.self_attn.attn.logits_soft_cap is None
            and all(tensor.dtype == dtype for tensor in (*layer.parameters(), rotary.cos_sin_cache))
        ):
            return False
    return True


def _functions(layers: Iterable[nn.Module], ops: type) -> list[tuple[type, str, str]] | None:
    """The functions that the one call stands in for, with their names in the source; None: a layer has other parts."""
    found = dict.fromkeys((ops, name, f"CpuOps.{name}") for name in _OPERATIONS)
    try:
        for layer in layers:
            for path, known in _FORWARDS.items():
                found[type(layer.get_submodule(path)), "forward", known] = None
    except AttributeError:
        return None
    return list(found)


def _name_in_source(function: Any) -> str | None:
    """`Qwen2MLP.forward`; of a probe around it the probe's own. That of a subclass is another one, too."""
    code = getattr(function, "__code__", None)
    return None if code is None else str(code.co_qualname)
