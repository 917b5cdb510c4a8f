r"""Writes the keys and values of a step's tokens into their slots of the paged KV cache.

**The maths.** A copy. With s = slot_mapping[t], the slot of token t:

    key_cache[s // block_size, s % block_size] = key[t]        value_cache[...] = value[t]

A slot below 0 marks a padding row, for which nothing is written.

**The tiling.** A slot holds K * D elements, all key heads of a token. One program takes BLOCK_TOKENS tokens:

      key [T, K, D]                     slot_mapping [T]            key_cache: blocks of block_size slots
      token 0  |#######|                     5                      block 0  |0      |1      |2      |3      |
      token 1  |#######|   ----------->      6       ----------->   block 1  |4      |5 #####|6 #####|7      |
      token 2  |#######|                    12                      block 2  |8      |9      |10     |11     |
                                                                    block 3  |12 ####|13     |14     |15     |
      and the same for the values

**Memory traffic** of a launch, in bytes, e for each element:

    read     2 * T * K * D * e  +  T * 8  (slots)        written  2 * T * K * D * e

In a request's life: once in each layer of each step, between the rotary embedding and attention. vLLM:
csrc/cache_kernels.cu::reshape_and_cache_flash, with a block of threads a token.
"""

import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.model_executor.ops.triton.launch import launch, rows_bucket, tuned

__all__ = ["CONFIGS", "FIXED", "reshape_and_cache"]

CONFIGS = [triton.Config({"BLOCK_TOKENS": tokens}, num_warps=warps) for tokens in (1, 4) for warps in (1, 2, 4)]
FIXED = triton.Config({"BLOCK_TOKENS": 64})


@tuned(CONFIGS, FIXED, key=["SIZE", "ROWS_BUCKET"])
@triton.jit(do_not_specialize=["tokens", "ROWS_BUCKET"])
def reshape_and_cache_kernel(
    key,  # [tokens, SIZE], tokens `*_stride` apart
    value,
    key_cache,  # [slots, SIZE], slots `*_stride` apart
    value_cache,
    slot_mapping,  # int64 [tokens]
    tokens,
    key_stride,
    value_stride,
    key_slot_stride,
    value_slot_stride,
    SIZE: tl.constexpr,  # K * D
    BLOCK_SIZE: tl.constexpr,  # a power of two, at least SIZE
    ROWS_BUCKET,  # read by the tuner only
    BLOCK_TOKENS: tl.constexpr,
):
    """One program: BLOCK_TOKENS tokens."""
    # int64: offsets in a cache, and in the tokens of a step, can exceed 2^31.
    token = (tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)).to(tl.int64)[:, None]
    number = tl.arange(0, BLOCK_SIZE)[None, :]
    slot = tl.load(slot_mapping + token, mask=token < tokens, other=-1)
    owned = (slot >= 0) & (number < SIZE)  # [BLOCK_TOKENS, BLOCK_SIZE]
    tl.store(
        key_cache + slot * key_slot_stride + number, tl.load(key + token * key_stride + number, mask=owned), mask=owned
    )
    tl.store(
        value_cache + slot * value_slot_stride + number,
        tl.load(value + token * value_stride + number, mask=owned),
        mask=owned,
    )


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """See `AttentionImpl.reshape_and_cache`; slots below 0 are skipped."""
    tokens, size = len(slot_mapping), key.shape[1] * key.shape[2]
    key, value = key.flatten(1), value.flatten(1)  # views, where a token's heads lie one after the other
    key_slots, value_slots = (cache.view(-1, size) for cache in (key_cache, value_cache))
    launch(
        reshape_and_cache_kernel,
        lambda blocks: (triton.cdiv(tokens, blocks["BLOCK_TOKENS"]),),
        *(key, value, key_slots, value_slots, slot_mapping, tokens),
        *(key.stride(0), value.stride(0), key_slots.stride(0), value_slots.stride(0)),
        SIZE=size,
        BLOCK_SIZE=triton.next_power_of_2(size),
        ROWS_BUCKET=rows_bucket(tokens),
    )
