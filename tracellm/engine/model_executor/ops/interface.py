"""The few operations that the layers are made of, as one interface: what a kernel library must provide.

A layer calls `self.ops.rms_norm(...)` and does not know who computes it: `TorchOps` (torch_ops.py), the reference,
`CpuOps` (cpu_ops.py) or `TritonOps` (triton/). choice.py decides.

In a request's life: every layer of every step ends here. vLLM: vllm/_custom_ops.py (norms, rotary embedding,
activation) and vllm/v1/attention/backends/flash_attn.py (`FlashAttentionMetadata`, the attention call).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["AttentionMetadata", "Ops"]


@dataclass(eq=False)
class AttentionMetadata:
    """Which tokens of a step belong to which sequence, and where the keys and values of each sequence are.

    A step's tokens lie one sequence after the other in one flat batch of T tokens, R sequences. A sequence's last
    query token is its last token: with n tokens in this step and length L, its queries are at positions L-n .. L-1. So
    prefill (n = L), a later piece of a prompt or a prompt with a cached prefix (1 < n < L) and decode (n = 1) are one
    case.
    """

    query_start_loc: Tensor
    """int32 [R + 1]: sequence i has the tokens query_start_loc[i] .. query_start_loc[i + 1] - 1 of the batch."""
    seq_lens: Tensor
    """int32 [R]: tokens of each sequence in the KV cache, those of this step among them."""
    block_table: Tensor
    """int32 [R, most blocks of a sequence]: token p of sequence i is in block block_table[i, p // block_size]."""
    slot_mapping: Tensor
    """int64 [T]: the slot (block * block_size + offset) that each token of this step is written to."""
    query_lens_cpu: list[int]
    """R numbers: tokens of each sequence in this step; known on the host, so that nobody waits for the device."""
    seq_lens_cpu: list[int]
    """R numbers: `seq_lens` on the host."""
    block_table_cpu: Any = None
    """int32 [R, most blocks of a sequence]: `block_table` on the host, NumPy; None where only the device has it."""
    max_seq_len: int | None = None
    """Launches must suit sequences of up to so many tokens: those of a CUDA graph stay as they are while sequences
    grow. None: the sequences that are here."""
    plans: dict[int | None, Any] = field(default_factory=dict)
    """By sliding window: what an implementation of `Ops` works out once a step and not once a layer."""


class Ops(ABC):
    """The operations. In shapes: T tokens of the step, H query heads, K key/value heads (K divides H), D head size."""

    def prepare_weights(self, model: nn.Module) -> None:  # noqa: B027  (most have nothing to prepare)
        """Called once, when the model's weights are in their place: the moment to lay them out as `linear` reads them.

        vLLM: `process_weights_after_loading`.
        """

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`x @ weight.T + bias`. Shapes: x [..., n], weight [m, n] or what `prepare_weights` made of it, bias [m].

        The products of matrices are torch's here: its libraries (oneDNN, cuBLAS) have the best ones.
        """
        return F.linear(x, weight, bias)

    def decoder_layers(
        self, layers: nn.ModuleList, positions: Tensor, hidden_states: Tensor, metadata: AttentionMetadata | None
    ) -> tuple[Tensor, Tensor] | None:
        """All decoder layers (`Qwen2DecoderLayer`) at once: the last one's output and the residual stream, [T, hidden].

        None: they are to be called one by one, as here. What comes out is the same, bit for bit.

        Args:
            layers: all of the model.
            positions: int64 [T].
            hidden_states: the embeddings [T, hidden].
            metadata: of all layers; None where there is none, or they differ in it.
        """
        return None

    @abstractmethod
    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """`x / rms(x) * weight` over the last dimension; rms (root mean square) in float32, the result in x's dtype.

        Shapes: x [T, n], weight [n].
        """

    @abstractmethod
    def fused_add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """Add, then norm: `(rms_norm(x + residual), x + residual)`. Shapes: x and residual [T, n], weight [n]."""

    @abstractmethod
    def gemma_rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """`x / rms(x) * (1 + weight)` over the last dimension, all in float32; the result in x's dtype.

        Shapes: x [..., n], weight [n].
        """

    @abstractmethod
    def rotary_embedding(
        self, positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotate the query and key heads by their token's position; dimension i is paired with i + D/2 (NeoX style).

        Shapes: positions int [T], query [T, H, D], key [T, K, D], cos_sin_cache [positions, D]: D/2 cosines, then D/2
        sines.
        """

    @abstractmethod
    def silu_and_mul(self, x: Tensor) -> Tensor:
        """`silu(gate) * up` where x [T, 2n] holds the gate in its first half and up in its second; [T, n]."""

    @abstractmethod
    def gelu_tanh_and_mul(self, x: Tensor) -> Tensor:
        """`gelu(gate) * up`, the gelu by its tanh approximation; x [T, 2n] as in `silu_and_mul`, the result [T, n]."""

    @abstractmethod
    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """Write the keys and values of this step's tokens, [T, K, D], into their slots of the paged cache.

        Shapes: key_cache and value_cache [blocks, block_size, K, D], slot_mapping int64 [T].
        """

    @abstractmethod
    def apply_top_k_top_p(self, logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
        """Logits with those that are not among the likeliest of their row set to minus infinity; the sampler asks.

        First top-k: what is below the k-th largest goes; tokens equal to it stay, so more than k can. Then top-p, on
        the probabilities that are left: the fewest likeliest tokens that together reach p stay; always at least one.

        Shapes: logits float32 [N, V], top_k int [N] in 1 .. V, top_p float32 [N] in (0, 1]; None: no row asks for it.
        """

    @abstractmethod
    def paged_attention(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: AttentionMetadata,
        scale: float,
        *,
        sliding_window: int | None = None,
        logits_soft_cap: float | None = None,
    ) -> Tensor:
        """Causal attention: a query over its own sequence's tokens up to its position, read from the paged cache.

        Query head h reads key/value head h // (H / K). Slots that no sequence of the step owns are never read, nor
        those of a sequence's last block beyond its length, nor tokens before the window of a sequence's first query:
        their entries in the block table may be anything.

        Shapes: query [T, H, D], key_cache and value_cache [blocks, block_size, K, D]; the result [T, H, D].

        Args:
            query: of the step's tokens.
            key_cache: of one layer.
            value_cache: of one layer.
            metadata: which tokens belong to which sequence, and where its keys and values are.
            scale: multiplies the scores.
            sliding_window: a query at position p sees p and the `sliding_window - 1` positions before it; None: all.
            logits_soft_cap: bends the scores into (-cap, cap), `cap * tanh(score / cap)`; None: leaves them alone.
        """
