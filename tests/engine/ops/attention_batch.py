"""Batches for tests of paged attention, in a cache that is NaN elsewhere, and their expected results."""

import random
from typing import Any

import torch
from torch import Tensor

from tracellm.engine.attention.backend import AttentionImpl, CommonAttentionMetadata
from tracellm.engine.attention.selector import get_attn_backend
from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec
from tracellm.engine.model_executor.layers.forward_context import set_forward_context

__all__ = ["Batch"]


class Batch:
    """Sequences of given (query length, length) in a paged cache that is NaN everywhere else.

    Blocks before the window of a sequence's first query are freed, as in the KV cache: the block table has 0 there.
    """

    def __init__(
        self,
        lengths: list[tuple[int, int]],
        *,
        heads: tuple[int, int],
        block_size: int,
        window: int | None = None,
        cap: float | None = None,
        head_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.window, self.cap, self.scale, self.block_size = window, cap, head_size**-0.5, block_size
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.lengths, (num_heads, num_kv_heads) = lengths, heads
        counts = [-(-length // block_size) for _, length in lengths]
        blocks = rng.sample(range(1, sum(counts) + 4), sum(counts))
        table = torch.full((len(lengths), max(counts) + 1), 10**6, dtype=torch.int32)  # past a row's blocks
        for row, count in enumerate(counts):
            table[row, :count] = torch.tensor([blocks.pop() for _ in range(count)])

        def randn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(dtype)

        self.query = randn(sum(query_len for query_len, _ in lengths), num_heads, head_size).to(device)
        self.keys = [randn(length, num_kv_heads, head_size) for _, length in lengths]
        self.values = [randn(length, num_kv_heads, head_size) for _, length in lengths]
        cache = torch.full((2, sum(counts) + 4, block_size, num_kv_heads, head_size), torch.nan, dtype=dtype)
        slots = [table[row, torch.arange(n) // block_size] * block_size + torch.arange(n) % block_size
                 for row, (_, n) in enumerate(lengths)]  # fmt: skip
        for (query_len, length), key, value, where in zip(lengths, self.keys, self.values, slots, strict=True):
            before = length - query_len  # written by earlier steps
            cache[0].flatten(0, 1)[where[:before].long()] = key[:before]
            cache[1].flatten(0, 1)[where[:before].long()] = value[:before]
        if window is not None:
            for row, (query_len, length) in enumerate(lengths):
                skipped = max(0, length - query_len - window + 1) // block_size
                cache[:, table[row, :skipped].long()] = torch.nan
                table[row, :skipped] = 0
        self.cache = cache.to(device)
        query_lens = [query_len for query_len, _ in lengths]
        self.common = CommonAttentionMetadata(
            query_start_loc=torch.tensor([0, *query_lens]).cumsum(0).int().to(device),
            seq_lens=torch.tensor([length for _, length in lengths], dtype=torch.int32).to(device),
            block_table=table.to(device),
            slot_mapping=torch.cat([where[-q:] for (q, _), where in zip(lengths, slots, strict=True)])
            .long()
            .to(device),
            query_lens_cpu=query_lens,
            seq_lens_cpu=[length for _, length in lengths],
            block_table_cpu=table.numpy().copy(),
        )

    def take_over(self, other: "Batch", row: int) -> None:
        """Copy the numbers of a sequence of another batch into this batch's only sequence, of the same length."""
        start, stop = other.common.query_start_loc[row : row + 2].tolist()
        self.query = other.query[start:stop]
        self.keys, self.values = [other.keys[row]], [other.values[row]]
        at = torch.arange(other.lengths[row][1] - (stop - start))  # written by earlier steps
        blocks = torch.from_numpy(self.common.block_table_cpu)[0]
        slots = blocks[at // self.block_size].long() * self.block_size + at % self.block_size
        for cache, numbers in zip(self.cache, (other.keys[row], other.values[row]), strict=True):
            cache.flatten(0, 1)[slots.to(cache.device)] = numbers[: len(at)].to(cache.device)

    def impl(self, backend: str) -> AttentionImpl:
        """Make the attention of a layer with the backend of this name."""
        num_heads, head_size = self.query.shape[1:]
        impl_cls = get_attn_backend(backend).get_impl_cls()
        return impl_cls(num_heads, head_size, self.scale, self.cache.shape[3], self.window, self.cap)

    def metadata(self, backend: str) -> Any:
        """Return the backend's metadata of the batch."""
        impl = self.impl(backend)
        spec = FullAttentionSpec(self.block_size, impl.num_kv_heads, impl.head_size, self.query.dtype)
        return get_attn_backend(backend).get_builder_cls()(spec, [impl]).build(self.common)

    def attend(self, backend: str) -> Tensor:
        """Write the step's keys and values, then attend, as a layer does."""
        new_keys = torch.cat([key[-q:] for (q, _), key in zip(self.lengths, self.keys, strict=True)])
        new_values = torch.cat([value[-q:] for (q, _), value in zip(self.lengths, self.values, strict=True)])
        device = self.cache.device
        metadata = self.metadata(backend)
        with set_forward_context({"layer": metadata}):
            return self.impl(backend).forward(
                self.query, new_keys.to(device), new_values.to(device), self.cache, metadata
            )

    def expected(self) -> Tensor:
        """Return the attention of each query in float64, by the definition: [T, H, D]."""
        queries = self.query.cpu().double().split(self.common.query_lens_cpu)
        of_sequences = []
        for query, key, value in zip(queries, self.keys, self.values, strict=True):
            shared = query.shape[1] // key.shape[1]
            key, value = (side.double().repeat_interleave(shared, 1) for side in (key, value))  # [S, H, D]
            scores = torch.einsum("qhd,shd->hqs", query, key) * self.scale
            if self.cap is not None:
                scores = torch.tanh(scores / self.cap) * self.cap
            at = torch.arange(len(key) - len(query), len(key))[:, None]
            distance = at - torch.arange(len(key))[None]
            hidden = (distance < 0) | (distance >= (self.window or len(key)))
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            of_sequences.append(torch.einsum("hqs,shd->qhd", weights, value))
        return torch.cat(of_sequences)

    def check(self, backend: str, tolerance: float = 1e-5) -> None:
        """Check that the result is the definition's, and that no unowned block was read."""
        output = self.attend(backend)
        assert output.dtype == self.query.dtype
        torch.testing.assert_close(output.cpu().double(), self.expected(), atol=tolerance, rtol=tolerance)
