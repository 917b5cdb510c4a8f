"""Tests of writing keys and values into the paged cache, in every implementation."""

import pytest
import torch

from tests.engine.ops.implementations import DTYPES, Implementation, numbers
from tracellm.engine.attention.selector import get_attn_backend


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "blocks", "block_size", "heads", "size"),
    [(1, 1, 1, 1, 1), (6, 5, 4, 2, 16), (70, 9, 16, 3, 20), (1000, 70, 16, 1, 8)],
)
def test_each_token_lies_in_its_slot(
    implementation: Implementation, dtype: torch.dtype, tokens: int, blocks: int, block_size: int, heads: int, size: int
) -> None:
    """Each slot holds its token's key and value, in any order of slots, and every other slot is unchanged."""
    device = implementation.device
    generator = torch.Generator().manual_seed(tokens)
    slots = torch.randperm(blocks * block_size, generator=generator)[:tokens].to(device)
    # Slices of one merged projection, as in the layers; its rows hold the query too.
    merged = numbers(tokens, 3 * heads * size, dtype=dtype, device=device)
    key, value = (part.unflatten(-1, (heads, size)) for part in merged.split(heads * size, dim=-1)[1:])
    caches = torch.full((2, blocks, block_size, heads, size), torch.nan, dtype=dtype, device=device)
    impl = get_attn_backend(implementation.name).get_impl_cls()(heads, size, 1.0, heads)
    impl.reshape_and_cache(key, value, caches[0], caches[1], slots)
    for cache, written in zip(caches, (key, value), strict=True):
        by_slot = cache.flatten(0, 1)
        assert torch.equal(by_slot[slots], written)
        others = torch.ones(blocks * block_size, dtype=torch.bool, device=device)
        others[slots] = False
        assert by_slot[others].isnan().all()


def test_a_slot_below_zero_is_nowhere(device: str) -> None:
    """A token with slot -1, which only pads a batch, is not written."""
    key = torch.ones(3, 2, 4, device=device)
    caches = torch.zeros(2, 2, 2, 2, 4, device=device)
    impl = get_attn_backend("triton").get_impl_cls()(2, 4, 1.0, 2)
    impl.reshape_and_cache(key, key, caches[0], caches[1], torch.tensor([-1, 2, -1], device=device))
    assert caches.flatten(1, 2).sum(dim=(0, 2, 3)).tolist() == [0.0, 0.0, 16.0, 0.0]
