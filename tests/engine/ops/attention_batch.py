"""Batches for the tests of paged attention: blocks anywhere in a cache that is NaN elsewhere, and what is right."""

import random

import torch
from torch import Tensor

from tracellm.engine.model_executor.ops import AttentionMetadata, Ops

__all__ = ["Batch"]


class Batch:
    """Sequences of given (query length, length), their blocks anywhere in a paged cache that is NaN everywhere else.

    Blocks before the window of a sequence's first query are taken back, as the KV cache does: the table says 0 there.
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
        table = torch.full((len(lengths), max(counts) + 1), 10**6, dtype=torch.int32)  # beyond a row's blocks: nowhere
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
            before = length - query_len  # what earlier steps have written
            cache[0].flatten(0, 1)[where[:before].long()] = key[:before]
            cache[1].flatten(0, 1)[where[:before].long()] = value[:before]
        if window is not None:
            for row, (query_len, length) in enumerate(lengths):
                skipped = max(0, length - query_len - window + 1) // block_size
                cache[:, table[row, :skipped].long()] = torch.nan
                table[row, :skipped] = 0
        self.cache = cache.to(device)
        query_lens = [query_len for query_len, _ in lengths]
        self.metadata = AttentionMetadata(
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
        """Its one sequence, of the same length, gets the numbers of one of another batch's; the blocks stay its own."""
        start, stop = other.metadata.query_start_loc[row : row + 2].tolist()
        self.query = other.query[start:stop]
        self.keys, self.values = [other.keys[row]], [other.values[row]]
        at = torch.arange(other.lengths[row][1] - (stop - start))  # what earlier steps have written
        blocks = torch.from_numpy(self.metadata.block_table_cpu)[0]
        slots = blocks[at // self.block_size].long() * self.block_size + at % self.block_size
        for cache, numbers in zip(self.cache, (other.keys[row], other.values[row]), strict=True):
            cache.flatten(0, 1)[slots.to(cache.device)] = numbers[: len(at)].to(cache.device)

    def attend(self, ops: Ops) -> Tensor:
        """Write the step's keys and values, then attend; what a layer does."""
        new_keys = torch.cat([key[-q:] for (q, _), key in zip(self.lengths, self.keys, strict=True)])
        new_values = torch.cat([value[-q:] for (q, _), value in zip(self.lengths, self.values, strict=True)])
        key_cache, value_cache = self.cache.unbind(0)
        ops.reshape_and_cache(
            new_keys.to(self.cache.device),
            new_values.to(self.cache.device),
            key_cache,
            value_cache,
            self.metadata.slot_mapping,
        )
        return ops.paged_attention(
            self.query,
            key_cache,
            value_cache,
            self.metadata,
            self.scale,
            sliding_window=self.window,
            logits_soft_cap=self.cap,
        )

    def expected(self) -> Tensor:
        """The attention of each query in float64, straight from the definition: [T, H, D]."""
        queries = self.query.cpu().double().split(self.metadata.query_lens_cpu)
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

    def check(self, ops: Ops, tolerance: float = 1e-5) -> None:
        """The result is the definition's, and nothing unowned was read."""
        output = self.attend(ops)
        assert output.dtype == self.query.dtype
        torch.testing.assert_close(output.cpu().double(), self.expected(), atol=tolerance, rtol=tolerance)
