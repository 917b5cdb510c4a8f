r"""Loop of all attention kernels: rows of queries attend over the keys and values of a sequence, tile by tile.

The kernels' files define a program's rows, its keys, and the use of the result. The functions here are compiled into
each kernel by Triton. `AttentionCall` holds the arguments that all kernels share.

**The maths.** A query q sees keys k_t and values v_t of its sequence's tokens t:

    s_t = scale * q . k_t        p_t = exp(s_t) / sum of all exp(s)        output = sum of p_t * v_t

With a soft cap c, s_t is replaced by c * tanh(s_t / c).

**The online softmax.** The scores of a whole context are never stored. The program walks over it in tiles of BLOCK_N
tokens and keeps three values per row: the maximum score so far m, the sum l of exp(s - m), and the sum acc of
exp(s - m) * v. A tile with a new maximum m' scales l and acc by exp(m - m'). In the end output = acc / l. No exponent
is above 0, so nothing overflows; and keys and values are read only once.

**The pages.** Token t of a sequence is in slot t % block_size of block block_table[t // block_size]. Each token of a
tile looks up its block. Slots that the sequence does not own are not read.

**The tiling.** All rows of a program share the key head h: each key and value is read once for all of them.

                                                           KV cache of a layer: [blocks, block_size, K, D]
                                                            block 7      block 2      block 9
    q      [rows, D] --+                                   +-----------+------------+------------+
                       |     the sequence's blocks = 7 2 9 | . . h . . | . . h . .  | . . h      |
                       v                                   +-----------+------------+------------+
    m, l   [rows]    <-+<- tile [BLOCK_N, D] of keys,  <------ tokens first .. first + BLOCK_N - 1, then the next ...
    acc    [rows, D] <-+   the same of values

    in a tile:   q [rows, D] x keys^T [D, BLOCK_N] -> scores [rows, BLOCK_N] x values [BLOCK_N, D] -> into acc

Rows, D and BLOCK_N are powers of two of at least 16, as matrix units need; masks hide the padding.

**Memory traffic** of a program, in bytes, e for each element (2 in bfloat16), that attends over n tokens: read
n * 2 * D * e of keys and values and n * 4 of blocks, with 4 * n * D operations per row.

In a request's life: each attention layer of each step. vLLM: the loops of csrc/attention/attention_kernels.cuh and of
vllm/attention/ops/triton_unified_attention.py.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from tracellm.engine.model_executor.ops.triton.launch import INTERPRETED

if TYPE_CHECKING:
    from tracellm.engine.attention.backend import AttentionImpl, AttentionMetadata
    from tracellm.engine.attention.backends.triton_attn import AttentionPlan

__all__ = ["AttentionCall", "attend", "averaged", "block_rows", "load_rows", "store_rows"]


class AttentionCall(NamedTuple):
    """Attention of one layer in a step: what every attention kernel reads and is compiled for."""

    impl: "AttentionImpl"
    output: Tensor
    """[T, H, D]: each kernel writes the rows of its own sequences."""
    query: Tensor
    """[T, H, D]."""
    key_cache: Tensor
    """[blocks, block_size, K, D]."""
    value_cache: Tensor
    """[blocks, block_size, K, D], with the strides of `key_cache`."""
    metadata: "AttentionMetadata"
    plan: "AttentionPlan"

    @property
    def group(self) -> int:
        """Query heads that share a key head, G."""
        return self.impl.num_heads // self.impl.num_kv_heads

    def inputs(self, programs: Tensor) -> tuple[Any, ...]:
        """Return the arguments of every kernel from `query` to `table_stride`, in the order of its parameters.

        Args:
            programs: numbers of the programs' sequences, or the table of their tiles.
        """
        metadata = self.metadata
        return (
            *(self.query, self.key_cache, self.value_cache),
            *(programs, metadata.query_start_loc, metadata.seq_lens, metadata.block_table),
            self.impl.scale,
            *self.query.stride()[:2],
            *self.key_cache.stride()[:3],
            metadata.block_table.stride(0),
        )

    def constants(self) -> dict[str, Any]:
        """Return the `tl.constexpr` parameters of every kernel."""
        return {
            "GROUP": self.group,
            "HEAD_SIZE": self.impl.head_size,
            "KV_BLOCK_SIZE": self.key_cache.shape[1],
            "WINDOW": self.impl.sliding_window or 0,
            "SOFT_CAP": self.impl.logits_soft_cap or 0.0,
            "WIDEN": INTERPRETED,
            "BLOCK_D": max(16, triton.next_power_of_2(self.impl.head_size)),
        }


@triton.jit
def attend(
    q,  # [rows, BLOCK_D]
    last,  # int32 [rows]: the last position that each row sees, below `stop`; -1: a row without a query
    first,  # first position that any row sees
    stop,  # position after the last that any row sees
    keys,  # the cache at the key head: [blocks, block_size, D]
    values,  # the same
    blocks,  # int32: the sequence's row of the block table
    scale,
    block_stride,
    slot_stride,
    HEAD_SIZE: tl.constexpr,
    KV_BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,  # positions that a row sees, `last` included; 0: all
    SOFT_CAP: tl.constexpr,  # 0.0: none
    WIDEN: tl.constexpr,  # multiply in float32, for the interpreter: its bfloat16 product is wrong
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Attend over the keys at first .. stop - 1; return maximum score, sum of weights, and weighted sum of values.

    Shapes: [rows], [rows], [rows, BLOCK_D], float32.
    """
    maximum = tl.full([q.shape[0]], float("-inf"), tl.float32)
    total = tl.full([q.shape[0]], 0.0, tl.float32)
    acc = tl.full([q.shape[0], BLOCK_D], 0.0, tl.float32)
    dim = tl.arange(0, BLOCK_D)
    for start in range(first, stop, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        is_key = position < stop
        block = tl.load(blocks + position // KV_BLOCK_SIZE, mask=is_key, other=0)
        at = block.to(tl.int64) * block_stride + (position % KV_BLOCK_SIZE) * slot_stride
        at = at[:, None] + dim[None, :]  # [BLOCK_N, BLOCK_D]
        in_cache = is_key[:, None] & (dim < HEAD_SIZE)[None, :]
        k = tl.load(keys + at, mask=in_cache, other=0.0)
        v = tl.load(values + at, mask=in_cache, other=0.0)
        if WIDEN:
            k = k.to(tl.float32)
            v = v.to(tl.float32)

        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [rows, BLOCK_N]
        if SOFT_CAP > 0.0:
            scores = _capped(scores, SOFT_CAP)
        sees = position[None, :] <= last[:, None]
        if WINDOW > 0:
            sees = sees & (position[None, :] > last[:, None] - WINDOW)
        scores = tl.where(sees, scores, float("-inf"))

        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        finite = tl.where(new_maximum > float("-inf"), new_maximum, 0.0)  # -inf: no key seen so far
        shrink = tl.exp(maximum - finite)
        weights = tl.exp(scores - finite[:, None])
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        maximum = new_maximum
    return maximum, total, acc


@triton.jit
def _capped(scores, SOFT_CAP: tl.constexpr):
    """Compute cap * tanh(scores / cap) from an exponential that cannot overflow."""
    decay = tl.exp(-2.0 * tl.abs(scores) / SOFT_CAP)
    capped = SOFT_CAP * (1.0 - decay) / (1.0 + decay)
    return tl.where(scores < 0.0, -capped, capped)


@triton.jit
def averaged(acc, total):
    """Return acc / total, [rows, BLOCK_D]; 0 for a row without keys, such as padding."""
    return acc / tl.where(total > 0.0, total, 1.0)[:, None]


@triton.jit
def load_rows(at, is_row, HEAD_SIZE: tl.constexpr, WIDEN: tl.constexpr, BLOCK_D: tl.constexpr):
    """Load D elements at each address [rows], padded with 0 to [rows, BLOCK_D]."""
    dim = tl.arange(0, BLOCK_D)
    numbers = tl.load(at[:, None] + dim[None, :], mask=is_row[:, None] & (dim < HEAD_SIZE)[None, :], other=0.0)
    if WIDEN:
        numbers = numbers.to(tl.float32)
    return numbers


@triton.jit
def store_rows(at, numbers, is_row, HEAD_SIZE: tl.constexpr, BLOCK_D: tl.constexpr):
    """Store the first D elements of each valid row of `numbers` [rows, BLOCK_D] at the addresses [rows]."""
    dim = tl.arange(0, BLOCK_D)
    inside = is_row[:, None] & (dim < HEAD_SIZE)[None, :]
    tl.store(at[:, None] + dim[None, :], numbers.to(at.dtype.element_ty), mask=inside)


def block_rows(rows: int) -> int:
    """Return `rows` rounded up to a size for matrix units: a power of two of at least 16."""
    return max(16, triton.next_power_of_2(rows))
