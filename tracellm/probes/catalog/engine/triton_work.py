"""Memory traffic and floating-point operations of a Triton kernel's launch, computed on the host from its arguments.

The docstring of each kernel's file derives the formulas. Attention kernels read as many keys as their sequences have
tokens. These lengths come from the forward pass's `AttentionMetadata`, on the host: nothing waits for the GPU.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

__all__ = ["Work", "estimate_work"]

GridIndex = tuple[int | None, ...]
"""Index of programs in the grid; None for all programs along this axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Work of one launch, all programs together.

    Attributes:
        bytes_read: bytes read from the GPU's memory if each program reads what it needs once, without cache hits.
        bytes_written: bytes written to the GPU's memory.
        flops: floating-point operations; a multiply-add counts as two, an exponential as one. For attention, the two
            products only.
        blocks_read: for attention, the KV cache blocks that the programs at each grid index read, in the order of their
            positions.
        reason: for paged attention, why `v1` (short_context: no context is longer than a partition; enough_programs:
            the GPU is busy without splitting contexts) or `v2` (few_programs).
    """

    bytes_read: int
    bytes_written: int
    flops: int
    blocks_read: Mapping[GridIndex, Sequence[int]] | None = None
    reason: str | None = None


class _Reads(NamedTuple):
    """Keys at positions first .. stop - 1 of one sequence, read by programs for some of its queries."""

    grid_index: GridIndex
    sequence: int
    first: int
    stop: int
    queries: int
    pairs: int
    """Pairs of a query and a key that it sees."""


def estimate_work(kernel: str, values: Mapping[str, Any]) -> Work | None:
    """Return the work of a launch, or None if it is unknown.

    Args:
        kernel: the kernel's name.
        values: arguments of the launch by name, constants included.
    """
    if estimate := _ESTIMATES.get(kernel):
        return estimate(values)
    if kernel not in _ATTENTION or (metadata := _find_metadata(values)) is None:
        return None
    known = _attention_work.setdefault(metadata, {})  # the layers of a step share their metadata
    key = (kernel, values["WINDOW"])
    if key not in known:
        known[key] = _ATTENTION[kernel](values, metadata)
    return known[key]


# -- kernels over rows -------------------------------------------------------------------------------------------------


def _norm(values: Mapping[str, Any], tensors: int) -> Work:
    weight, numel = values["weight"], values["out"].numel()
    size = weight.element_size()
    return Work((tensors * numel + weight.numel()) * size, tensors * numel * size, (3 + tensors) * numel)


def _rotary(values: Mapping[str, Any]) -> Work:
    positions, query, key = values["positions"], values["query"], values["key"]
    numel, size = query.numel() + key.numel(), query.element_size()
    table = query.shape[0] * query.shape[2]
    return Work((numel + table) * size + positions.nbytes, numel * size, 3 * numel)


def _act_and_mul(values: Mapping[str, Any]) -> Work:
    x, out = values["x"], values["out"]
    return Work(x.nbytes, out.nbytes, (10 if values["GELU"] else 5) * out.numel())


def _reshape_and_cache(values: Mapping[str, Any]) -> Work:
    num_bytes = values["key"].nbytes + values["value"].nbytes
    return Work(num_bytes + values["slot_mapping"].nbytes, num_bytes, 0)


def _top_k_top_p(values: Mapping[str, Any]) -> Work:
    """Count three comparisons and additions per score in each of 16 passes; for top-p, also an exponential."""
    logits, has_k, has_p = values["logits"], values["HAS_K"], values["HAS_P"]
    per_score = 16 * (6 * has_k + 8 * has_p) + 3 * has_p + 1
    return Work(logits.nbytes, logits.nbytes, per_score * logits.numel())


_ESTIMATES: dict[str, Callable[[Mapping[str, Any]], Work]] = {
    "rms_norm_kernel": lambda values: _norm(values, 1),
    "fused_add_rms_norm_kernel": lambda values: _norm(values, 2),
    "rotary_embedding_kernel": _rotary,
    "act_and_mul_kernel": _act_and_mul,
    "reshape_and_cache_kernel": _reshape_and_cache,
    "top_k_top_p_kernel": _top_k_top_p,
}


# -- attention ---------------------------------------------------------------------------------------------------------

_attention_work: WeakKeyDictionary[Any, dict[tuple[str, int], Work]] = WeakKeyDictionary()
"""Work of a step's launches, by metadata, kernel and window."""


def _find_metadata(values: Mapping[str, Any]) -> Any:
    """Return the metadata of the current forward pass that holds the launch's tensors, or None."""
    name = "block_table" if "block_table" in values else "seq_lens"  # KV cache groups share only the lengths
    context = sys.modules.get("tracellm.engine.model_executor.layers.forward_context")
    metadata = (context.get_forward_context() if context else None) or {}
    return next((of_layer for of_layer in metadata.values() if getattr(of_layer, name) is values[name]), None)


def _paged_attention_v1(values: Mapping[str, Any], metadata: Any) -> Work:
    reads = [
        _Reads((number, None), sequence, first, length, 1, length - first)
        for number, (sequence, first, length) in enumerate(_decodes(values, metadata))
    ]
    longest = max(read.stop - read.first for read in reads)
    if metadata.max_seq_len is not None:
        longest = min(metadata.max_seq_len, values["WINDOW"] or metadata.max_seq_len)
    partition = sys.modules["tracellm.engine.attention.backends.triton_attn"].PARTITION
    return _attention(values, metadata, reads, reason="short_context" if longest <= partition else "enough_programs")


def _paged_attention_v2(values: Mapping[str, Any], metadata: Any) -> Work:
    reads = [
        _Reads((number, None, part), sequence, first, stop, 1, stop - first)
        for number, part, sequence, first, stop in _partitions(values, metadata)
    ]
    bytes_per_row = 4 * (values["HEAD_SIZE"] + 2)  # float32: an average, a maximum, a sum
    return _attention(values, metadata, reads, reason="few_programs", bytes_per_row=bytes_per_row)


def _paged_attention_v2_reduce(values: Mapping[str, Any], metadata: Any) -> Work:
    heads, head_size = values["output"].shape[1:]
    rows = len(list(_partitions(values, metadata))) * heads
    written = len(values["sequences"]) * heads * head_size * values["output"].element_size()
    return Work(rows * 4 * (head_size + 2), written, 2 * rows * head_size)


def _attention_varlen(values: Mapping[str, Any], metadata: Any) -> Work:
    window = values["WINDOW"]
    reads: list[_Reads] = []
    for sequence, (queries, length) in enumerate(zip(metadata.query_lens_cpu, metadata.seq_lens_cpu, strict=True)):
        if queries == 1:
            continue
        for start in range(0, queries, values["QUERIES"]):
            in_tile = min(values["QUERIES"], queries - start)
            position = length - queries + start  # of the tile's first query
            first = max(0, position + 1 - window) if window else 0
            pairs = _pairs_before(position + in_tile, window) - _pairs_before(position, window)
            reads.append(_Reads((len(reads), None), sequence, first, position + in_tile, in_tile, pairs))
    return _attention(values, metadata, reads)


_ATTENTION: dict[str, Callable[[Mapping[str, Any], Any], Work]] = {
    "paged_attention_v1_kernel": _paged_attention_v1,
    "paged_attention_v2_kernel": _paged_attention_v2,
    "paged_attention_v2_reduce_kernel": _paged_attention_v2_reduce,
    "attention_varlen_kernel": _attention_varlen,
}


def _decodes(values: Mapping[str, Any], metadata: Any) -> Iterator[tuple[int, int, int]]:
    """Yield number, first position seen, and length of each sequence with one query."""
    for sequence, (queries, length) in enumerate(zip(metadata.query_lens_cpu, metadata.seq_lens_cpu, strict=True)):
        if queries == 1:
            yield sequence, max(0, length - values["WINDOW"]) if values["WINDOW"] else 0, length


def _partitions(values: Mapping[str, Any], metadata: Any) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield for each part of a context: number of the decode, of the part, of the sequence, first and stop position."""
    for number, (sequence, begin, length) in enumerate(_decodes(values, metadata)):
        share = max(values["PARTITION"], -(-(length - begin) // values["partitions"]))
        for part, first in enumerate(range(begin, length, share)):
            yield number, part, sequence, first, min(first + share, length)


def _pairs_before(position: int, window: int) -> int:
    """Return the sum of the keys that the queries at all positions before this one see."""
    growing = min(position, window) if window else position  # queries that see one key more than the one before
    return growing * (growing + 1) // 2 + (position - growing) * window


def _attention(
    values: Mapping[str, Any],
    metadata: Any,
    reads: Sequence[_Reads],
    *,
    reason: str | None = None,
    bytes_per_row: int | None = None,
) -> Work:
    """Return the work of programs that attend, each place with one program per key head.

    `bytes_per_row` are written for each query and head; by default a row of `query`.
    """
    query, key_cache = values["query"], values["key_cache"]
    heads, head_size = query.shape[1:]
    key_heads, block_size = key_cache.shape[2], key_cache.shape[1]
    row = head_size * query.element_size()
    tokens = sum(read.stop - read.first for read in reads)
    rows = heads * sum(read.queries for read in reads)
    table, blocks = metadata.block_table_cpu, None
    if table is not None:
        blocks = {
            read.grid_index: table[read.sequence, read.first // block_size : -(-read.stop // block_size)].tolist()
            for read in reads
        }
    return Work(
        bytes_read=key_heads * tokens * (2 * head_size * key_cache.element_size() + 4) + rows * row,
        bytes_written=rows * (row if bytes_per_row is None else bytes_per_row),
        flops=4 * heads * head_size * sum(read.pairs for read in reads),
        blocks_read=blocks,
        reason=reason,
    )
