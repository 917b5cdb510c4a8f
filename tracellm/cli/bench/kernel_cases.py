"""The operations that `tracellm bench kernels` measures, in the sizes of a model: what each reads, writes and computes.

A model's layers follow one another, so a layer finds none of its weights or keys in the processor's cache. Here, too:
such a case has copies of its tensors, as many as no cache holds, and takes them in turn.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracellm.engine.layers.linear import ReplicatedLinear
from tracellm.engine.ops import AttentionMetadata, Ops, using_ops

if TYPE_CHECKING:
    from tracellm.engine.config import ModelConfig

__all__ = ["Case", "Sizes", "cases"]

_COLD_BYTES = 1 << 28
_MOST_COPIES = 64
_EPSILON = 1e-6
_BLOCK_SIZE = 16


@dataclass(frozen=True)
class Sizes:
    """Of a model, and of a step: T tokens, each decoding one with `context` tokens before it where it attends."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocab: int
    dtype: torch.dtype
    device: torch.device
    tokens: int
    context: int

    @classmethod
    def of(cls, config: "ModelConfig", device: torch.device, tokens: int, context: int) -> "Sizes":
        """Those of a model; where its config.json does not say how wide the layers within are, four times the outer."""
        hidden = config.get_hidden_size()
        return cls(
            hidden=hidden,
            intermediate=getattr(config.hf_config, "intermediate_size", None) or 4 * hidden,
            heads=config.get_num_attention_heads(),
            kv_heads=config.get_num_kv_heads(),
            head_size=config.get_head_size(),
            vocab=config.get_vocab_size(),
            dtype=config.dtype,
            device=device,
            tokens=tokens,
            context=context,
        )

    def random(self, *shape: int) -> Tensor:
        """A tensor of the model's dtype."""
        return torch.randn(shape, device=self.device).to(self.dtype)


@dataclass(frozen=True)
class Case:
    """One operation."""

    name: str
    num_bytes: int
    """What it must read and write, each once."""
    flops: int
    """In products of matrices; 0 for operations whose arithmetic is nothing beside their reading."""
    make: Callable[[Ops], list[Callable[[], object]]]
    """The operation on its tensors, as often as there are copies of them."""


def cases(sizes: Sizes) -> Iterator[Case]:
    """Every operation of a layer, then the products of matrices with a layer's weights, then attention."""
    yield from _elementwise(sizes)
    query_size = sizes.heads * sizes.head_size
    kv_size = sizes.kv_heads * sizes.head_size
    yield _linear(sizes, "linear qkv", sizes.hidden, query_size + 2 * kv_size)
    yield _linear(sizes, "linear gate_up", sizes.hidden, 2 * sizes.intermediate)
    yield _linear(sizes, "linear down", sizes.intermediate, sizes.hidden)
    yield _linear(sizes, "linear lm_head", sizes.hidden, sizes.vocab)
    yield _attention(sizes, "attention decode", [1] * sizes.tokens, [sizes.context] * sizes.tokens)
    if sizes.tokens > 1:
        yield _attention(sizes, "attention prefill", [sizes.tokens], [sizes.tokens])


def _elementwise(sizes: Sizes) -> Iterator[Case]:
    tokens, width = sizes.tokens, sizes.dtype.itemsize
    x, residual, weight = (
        sizes.random(tokens, sizes.hidden),
        sizes.random(tokens, sizes.hidden),
        sizes.random(sizes.hidden),
    )
    row = tokens * sizes.hidden * width
    yield Case("rms_norm", 2 * row, 0, lambda ops: [lambda: ops.rms_norm(x, weight, _EPSILON)])
    yield Case(
        "fused_add_rms_norm", 4 * row, 0, lambda ops: [lambda: ops.fused_add_rms_norm(x, residual, weight, _EPSILON)]
    )
    gates = sizes.random(tokens, 2 * sizes.intermediate)
    yield Case(
        "silu_and_mul", 3 * tokens * sizes.intermediate * width, 0, lambda ops: [lambda: ops.silu_and_mul(gates)]
    )
    query = sizes.random(tokens, sizes.heads, sizes.head_size)
    key = sizes.random(tokens, sizes.kv_heads, sizes.head_size)
    table = sizes.random(sizes.context + tokens, sizes.head_size)
    positions = torch.arange(tokens, device=sizes.device)
    turned = 2 * tokens * (sizes.heads + sizes.kv_heads) * sizes.head_size * width
    yield Case("rotary_embedding", turned, 0, lambda ops: [lambda: ops.rotary_embedding(positions, query, key, table)])
    blocks = ceil(tokens / _BLOCK_SIZE)
    cache = sizes.random(2, blocks, _BLOCK_SIZE, sizes.kv_heads, sizes.head_size)
    slots = torch.randperm(blocks * _BLOCK_SIZE, device=sizes.device)[:tokens]
    yield Case(
        "reshape_and_cache",
        4 * key.numel() * width,
        0,
        lambda ops: [lambda: ops.reshape_and_cache(key, key, cache[0], cache[1], slots)],
    )


def _linear(sizes: Sizes, name: str, inputs: int, outputs: int) -> Case:
    width = sizes.dtype.itemsize
    weight_bytes = inputs * outputs * width

    def make(ops: Ops) -> list[Callable[[], object]]:
        x = sizes.random(sizes.tokens, inputs)
        layers = []
        for _ in range(_copies(weight_bytes)):
            with using_ops(ops):
                layer = ReplicatedLinear(inputs, outputs, bias=False).to(sizes.device, sizes.dtype)
            layer.weight.data.uniform_(-0.1, 0.1)
            ops.prepare_weights(layer)
            layers.append(layer)
        return [lambda layer=layer: layer(x) for layer in layers]  # type: ignore[misc]

    return Case(
        name,
        weight_bytes + sizes.tokens * (inputs + outputs) * width,
        2 * sizes.tokens * inputs * outputs,
        make,
    )


def _attention(sizes: Sizes, name: str, query_lens: list[int], seq_lens: list[int]) -> Case:
    """Sequences whose blocks lie scattered over the cache."""
    width = sizes.dtype.itemsize
    per_sequence = ceil(max(seq_lens) / _BLOCK_SIZE)
    num_blocks = per_sequence * len(seq_lens)
    kv_bytes = 2 * sum(seq_lens) * sizes.kv_heads * sizes.head_size * width

    def make(ops: Ops) -> list[Callable[[], object]]:
        table = torch.randperm(num_blocks).view(len(seq_lens), per_sequence).to(torch.int32)
        query = sizes.random(sum(query_lens), sizes.heads, sizes.head_size)
        starts = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)

        def metadata() -> AttentionMetadata:
            return AttentionMetadata(
                query_start_loc=starts.to(sizes.device),
                seq_lens=torch.tensor(seq_lens, dtype=torch.int32, device=sizes.device),
                block_table=table.to(sizes.device),
                slot_mapping=torch.zeros(sum(query_lens), dtype=torch.int64, device=sizes.device),
                query_lens_cpu=query_lens,
                seq_lens_cpu=seq_lens,
                block_table_cpu=table.numpy(),
            )

        # A step's layers share one metadata: what is worked out once a step is not measured with each layer.
        shared = metadata()
        shape = (2, num_blocks, _BLOCK_SIZE, sizes.kv_heads, sizes.head_size)
        caches = [sizes.random(*shape) for _ in range(_copies(kv_bytes))]
        scale = sizes.head_size**-0.5
        return [
            lambda cache=cache: ops.paged_attention(query, cache[0], cache[1], shared, scale)  # type: ignore[misc]
            for cache in caches
        ]

    pairs = sum(
        queries * length - queries * (queries - 1) // 2 for queries, length in zip(query_lens, seq_lens, strict=True)
    )
    return Case(
        name,
        kv_bytes + 2 * sum(query_lens) * sizes.heads * sizes.head_size * width,
        4 * pairs * sizes.heads * sizes.head_size,
        make,
    )


def _copies(num_bytes: int) -> int:
    return max(1, min(_MOST_COPIES, ceil(_COLD_BYTES / num_bytes)))
