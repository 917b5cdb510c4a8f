"""Tests with tensors of more than 2^31 numbers, where 32-bit offsets would read and write at wrong addresses.

The system allocates only the touched pages of these gigabytes. The interpreter reports 32-bit overflow.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.engine.ops.attention_batch import Batch
from tracellm.engine.attention.backend import CommonAttentionMetadata
from tracellm.engine.attention.backends import triton_attn
from tracellm.engine.attention.backends.triton_attn import TritonAttentionImpl, TritonAttentionMetadataBuilder
from tracellm.engine.attention.ops.reshape_and_cache import reshape_and_cache
from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec
from tracellm.engine.model_executor.ops.triton import TritonOps

ops = TritonOps()

FAR = 1 << 30  # numbers between two tokens, which puts the third one at 2^31


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def far_apart(near: Tensor, device: str) -> Tensor:
    """Copy the three tokens of `near`, in float16, to addresses FAR numbers apart."""
    memory = torch.empty(2 * FAR + near[0].numel(), dtype=torch.float16, device=device)
    far = memory.as_strided(near.shape, (FAR, *near.stride()[1:]))
    return far.copy_(near)


def attention(lengths: list[tuple[int, int]], partition: int) -> Callable[[Tensor], Tensor]:
    """Compute the attention of three queries [3, 2, 16]."""

    def attend(query: Tensor) -> Tensor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(triton_attn, "PARTITION", partition)
            batch = Batch(lengths, heads=(2, 1), block_size=4, dtype=torch.float16, device=str(query.device))
            batch.query = query
            return batch.attend("triton")

    return attend


def turned(query: Tensor) -> Tensor:
    """Rotate the numbers by the same angles, together with a key."""
    key, cache = torch.ones_like(query[:, :1].contiguous()), torch.ones(4, 16).to(query)
    return ops.rotary_embedding(torch.arange(3, device=query.device), query, key, cache)[0]


def written(key: Tensor) -> Tensor:
    """Write the numbers into a cache of two blocks."""
    caches = torch.zeros(2, 2, 2, *key.shape[1:]).to(key)
    reshape_and_cache(key, key, caches[0], caches[1], torch.tensor([3, 0, 1], device=key.device))
    return caches


OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": lambda x: ops.rms_norm(x, torch.ones_like(x[0, 0]), 1e-6),
    "activation": lambda x: ops.silu_and_mul(x[:, 0]),
    "rotary": turned,
    "cache": written,
    "v1": attention([(1, 9), (1, 3), (1, 12)], 512),
    "v2": attention([(1, 9), (1, 3), (1, 12)], 4),
    "varlen": attention([(3, 9)], 512),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_tokens_that_lie_far_apart(name: str, device: str) -> None:
    """A token's result does not depend on its distance from the others."""
    near = torch.randn(3, 2, 16, dtype=torch.float16).to(device)
    assert torch.equal(OPERATIONS[name](far_apart(near, device)), OPERATIONS[name](near))


def test_a_cache_of_gigabytes(device: str) -> None:
    """Keys and values of a block beyond 2^31 numbers are written to it and read from it."""
    blocks = (1 << 31) // (16 * 16) + 2
    key, value, query = torch.randn(3, 1, 1, 16, dtype=torch.float16).to(device)
    keys, values = (torch.empty(blocks, 16, 1, 16, dtype=torch.float16, device=device) for _ in range(2))
    slot = blocks * 16 - 16  # first slot of the last block
    reshape_and_cache(key, value, keys, values, torch.tensor([slot], device=device))
    assert torch.equal(keys[-1, 0], key[0])
    assert torch.equal(values[-1, 0], value[0])
    common = CommonAttentionMetadata(
        query_start_loc=torch.tensor([0, 1], dtype=torch.int32, device=device),
        seq_lens=torch.tensor([1], dtype=torch.int32, device=device),
        block_table=torch.tensor([[blocks - 1]], dtype=torch.int32, device=device),
        slot_mapping=torch.tensor([slot], device=device),
        query_lens_cpu=[1],
        seq_lens_cpu=[1],
    )
    impl = TritonAttentionImpl(1, 16, 1.0, 1)
    metadata = TritonAttentionMetadataBuilder(FullAttentionSpec(16, 1, 16, torch.float16), [impl]).build(common)
    torch.testing.assert_close(impl.paged_attention(query, keys, values, metadata), value)
