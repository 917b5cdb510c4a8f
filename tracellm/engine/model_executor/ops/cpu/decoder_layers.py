"""All decoder layers of a model in one call of the kernels (layers.cpp), while nobody watches them one by one.

`Qwen2Model.forward` -> `CpuOps.decoder_layers` -> here, in every step. A layer of a small model is 0.1 ms of
arithmetic, and its ten modules take Python as long. The call does what they do, by the same kernels, with the same
bits. It is made only if each module of the layers is one that layers.cpp knows, just as its file has it. A recording
that shows layers or kernels replaces their functions, and a hook or a subclass changes what a module does: then the
modules are called. Each step asks anew: probes come off, and somebody may put in another module, weight or number.

vLLM: the graph that torch.compile makes of a model.
"""

import ctypes
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as of_all_modules

from tracellm.engine.model_executor.ops.interface import AttentionMetadata

__all__ = ["DecoderLayers"]

_LINEARS = {
    "qkv": "self_attn.qkv_proj",
    "output": "self_attn.o_proj",
    "gate_up": "mlp.gate_up_proj",
    "down": "mlp.down_proj",
}
"""What layers.cpp calls the linear layers, and where a decoder layer has them."""
_FORWARDS = {
    "": "model_executor.models.qwen2.Qwen2DecoderLayer.forward",
    "self_attn": "model_executor.models.qwen2.Qwen2Attention.forward",
    "self_attn.rotary_emb": "model_executor.layers.rotary_embedding.base.RotaryEmbedding.forward",
    "self_attn.attn": "model_executor.layers.attention.Attention.forward",
    "mlp": "model_executor.models.qwen2.Qwen2MLP.forward",
    "mlp.act_fn": "model_executor.layers.activation.SiluAndMul.forward",
    "input_layernorm": "model_executor.layers.layernorm.RMSNorm.forward",
    "post_attention_layernorm": "model_executor.layers.layernorm.RMSNorm.forward",
    **dict.fromkeys(_LINEARS.values(), "model_executor.layers.linear.ReplicatedLinear.forward"),
}
"""The parts of a decoder layer that layers.cpp knows, and the function of the engine that does their work."""
_OPERATIONS = (
    "linear", "rms_norm", "fused_add_rms_norm", "rotary_embedding", "silu_and_mul", "reshape_and_cache",
    "paged_attention",
)  # fmt: skip
_CPU_OPS = "tracellm.engine.model_executor.ops.cpu_ops.CpuOps"
_POINTERS = (
    "input_norm", "qkv", "qkv_bias", "output", "output_bias", "post_norm", "gate_up", "gate_up_bias", "down",
    "down_bias", "key_cache", "value_cache",
)  # fmt: skip
_KEPT_TOKENS = 256
"""Scratch memory for steps of up to so many tokens is kept; larger ones, which are prompts, make their own."""

_numbers = itemgetter("scale", "num_heads", "num_kv_heads", "head_size", "sliding_window", "logits_soft_cap")
"""Of an attention layer's attributes."""


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
    """The layers of one model: whether one call can do for them, and the addresses and sizes that it wants.

    It holds what is in the `ModuleList`, not the list itself: so `CpuOps`, which the layers hold, can forget it with
    the model.
    """

    dtype: torch.dtype
    kernel: str
    """How the names of the functions end that have this dtype and weights of theirs."""

    def __init__(self, layers: nn.ModuleList, ops: Any, is_packed: Callable[[Tensor], bool]) -> None:
        """`ops` is what the layers call; `is_packed`: is a weight laid out for the kernels?"""
        self.layers = layers._modules
        self.ops = ops
        self.is_packed = is_packed
        self._look()

    def can_run(self) -> bool:
        """The layers are as layers.cpp knows them, and nobody watches or changes what they do."""
        if self.parts != self.parts_seen or list(map(type, self.modules)) != self.types:
            self._look()
        if not self._is_known():
            return False
        if (facts := self._facts()) != self.facts:
            self._take_down(facts)
        return self.fits

    def _look(self) -> None:
        """See which modules the layers consist of; the dictionaries are the modules' own, so they tell of changes."""
        layers: list[Any] = list(self.layers.values())  # attributes of modules have no types
        self.modules = list(dict.fromkeys(one for layer in layers for one in layer.modules()))
        self.types = list(map(type, self.modules))
        self.attributes = list(map(vars, self.modules))
        self.parts = [self.layers, *(one._modules for one in self.modules)]
        self.parts_seen = [dict(parts) for parts in self.parts]
        self.tensors = [of_one for one in self.modules for of_one in (one._parameters, one._buffers) if of_one]
        self.functions = _functions(layers, self.ops)
        if any(tensor.is_mkldnn for layer in layers for tensor in layer.parameters()):
            self.functions = None  # weights for oneDNN, which have no address
        if self.functions is not None:
            self.attentions = [vars(layer.self_attn.attn) for layer in layers]
            norms = [norm for layer in layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
            self.norms = list(map(vars, norms))
        self.facts: list[Any] | None = None

    def _is_known(self) -> bool:
        return (
            self.functions is not None
            and all(_name_in_source(getattr(owner, name)) == known for owner, name, known in self.functions)
            and not (of_all_modules._global_forward_hooks or of_all_modules._global_forward_pre_hooks)
            and not any(
                own["_forward_hooks"]
                or own["_forward_pre_hooks"]
                or "forward" in own
                or own.get("ops", self.ops) is not self.ops
                for own in self.attributes
            )
        )

    def _facts(self) -> list[Any]:
        """What the one call is given and somebody may change without a module's becoming another one."""
        return [
            *map(_numbers, self.attentions),
            *(id(own["kv_cache"]) for own in self.attentions),  # the model runner may hand over another one
            *(own["variance_epsilon"] for own in self.norms),
            *(one.data_ptr() for of_one in self.tensors for one in of_one.values() if one is not None),
        ]

    def _take_down(self, facts: list[Any]) -> None:
        """Addresses and sizes, where the one call can do for the layers as they are now."""
        layers: list[Any] = list(self.layers.values())
        tensors = [one for of_one in self.tensors for one in of_one.values() if one is not None]
        self.facts = facts
        # Whatever becomes of the layers' own: nothing at an address is freed, nor an address given to something else.
        self.held = [*(own["kv_cache"] for own in self.attentions), *(one.data for one in tensors)]
        self.fits = False
        if layers and all(_fits(layer, layers[0].input_layernorm.weight.dtype, self.is_packed) for layer in layers):
            stacks = [_stack(layer, len(layers)) for layer in layers]
            kernels = {_tensors(layer)[name].kernel for layer in layers for name in _LINEARS}
            self.fits = len(kernels) == 1 and all(bytes(stack) == bytes(stacks[0]) for stack in stacks)
        if self.fits:
            self.dtype, self.kernel = layers[0].input_layernorm.weight.dtype, kernels.pop()
            self.stack = stacks[0]
            self.table = (_Layer * len(layers))(*map(_layer, layers))
            self.kept: Tensor | None = None

    def run(
        self, library: ctypes.CDLL, positions: Tensor, hidden_states: Tensor, metadata: AttentionMetadata
    ) -> tuple[Tensor, Tensor]:
        """The last layer's output and the residual stream, [T, hidden] both; only after `can_run`, in the same step."""
        tokens = hidden_states.shape[0]
        x = hidden_states.clone(memory_format=torch.contiguous_format)  # a hook may have kept the embeddings
        residual, scratch = torch.empty_like(x), self._scratch(library, tokens)
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
        getattr(library, f"decoder_layers_{self.kernel}")(
            ctypes.byref(self.stack),
            self.table,
            ctypes.byref(batch),
            x.data_ptr(),
            residual.data_ptr(),
            scratch.data_ptr(),
            torch.get_num_threads(),
        )
        return x, residual

    def _scratch(self, library: ctypes.CDLL, tokens: int) -> Tensor:
        if tokens > _KEPT_TOKENS:
            size = library.layers_scratch_size(ctypes.byref(self.stack), tokens)
            return torch.empty(size, dtype=self.dtype)
        if self.kept is None:
            size = library.layers_scratch_size(ctypes.byref(self.stack), _KEPT_TOKENS)
            self.kept = torch.empty(size, dtype=self.dtype)
        return self.kept


def _tensors(layer: Any) -> dict[str, Any]:
    """A layer's weights and biases, by the names that layers.cpp has for them; None: it has no such bias."""
    found = {"input_norm": layer.input_layernorm.weight, "post_norm": layer.post_attention_layernorm.weight}
    for name, path in _LINEARS.items():
        module = layer.get_submodule(path)
        found |= {name: module.weight, f"{name}_bias": module.bias}
    return found


def _fits(layer: Any, dtype: torch.dtype, is_packed: Callable[[Tensor], bool]) -> bool:
    """Has it packed weights, this dtype, heads that are rotated as a whole, and scores that are left alone?"""
    tensors, rotary, attention = _tensors(layer), layer.self_attn.rotary_emb, layer.self_attn.attn
    others = [one for name, one in tensors.items() if one is not None and name not in _LINEARS]
    return (
        all(is_packed(tensors[name]) and tensors[name].x_dtype == dtype for name in _LINEARS)
        # No other kinds: torch.nn.utils.parametrize makes a tensor anew for everyone who asks.
        and all(isinstance(one, nn.Parameter) and one.dtype == dtype for one in others)
        and rotary.rotary_dim == rotary.head_size == attention.head_size
        and rotary.cos_sin_cache.dtype == attention.kv_cache.dtype == dtype
        and attention.logits_soft_cap is None
    )


def _stack(layer: Any, count: int) -> _Stack:
    """What the call takes to be the same for all layers, as this one has it."""
    attention = layer.self_attn.attn
    return _Stack(
        layers=count,
        hidden=layer.self_attn.o_proj.weight.output_size,
        intermediate=layer.mlp.down_proj.weight.input_size,
        query_heads=attention.num_heads,
        kv_heads=attention.num_kv_heads,
        size=attention.head_size,
        block_size=attention.kv_cache.shape[2],
        input_epsilon=layer.input_layernorm.variance_epsilon,
        post_epsilon=layer.post_attention_layernorm.variance_epsilon,
        scale=attention.scale,
        cos_sin_cache=layer.self_attn.rotary_emb.cos_sin_cache.data_ptr(),
    )


def _layer(layer: Any) -> _Layer:
    """Its own addresses."""
    key_cache, value_cache = layer.self_attn.attn.kv_cache
    tensors = _tensors(layer) | {"key_cache": key_cache, "value_cache": value_cache}
    addresses = {name: None if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()}
    return _Layer(**addresses, window=layer.self_attn.attn.sliding_window or 0)


def _functions(layers: Iterable[nn.Module], ops: Any) -> list[tuple[Any, str, str]] | None:
    """The functions that the one call stands in for, with their names in the source; None: a layer has other parts."""
    found = dict.fromkeys(
        (ops, name, f"tracellm.engine.model_executor.ops.cpu_ops.CpuOps.{name}") for name in _OPERATIONS
    )
    try:
        for layer in layers:
            for path, known in _FORWARDS.items():
                found[type(layer.get_submodule(path)), "forward", f"tracellm.engine.{known}"] = None
    except AttributeError:
        return None
    return list(found)


def _name_in_source(function: Any) -> str | None:
    """Return the full name of a function as its source has it; None for a callable without code."""
    code = getattr(function, "__code__", None)
    return None if code is None else f"{function.__module__}.{code.co_qualname}"
