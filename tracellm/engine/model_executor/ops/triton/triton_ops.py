"""`TritonOps`: each operation launches the kernel of its file; the products of matrices are left to torch.

Which kernel is in which file: norms.py, rotary.py, activations.py, cache.py, attention.py (paged attention and its
relatives), sampling.py. Each opens with its maths, its tiling, its memory traffic and a drawing.

vLLM: vllm/_custom_ops.py, which calls kernels in CUDA; vllm/v1/attention/backends/triton_attn.py.
"""

from torch import Tensor

from tracellm.engine.model_executor.ops.interface import AttentionMetadata, Ops
from tracellm.engine.model_executor.ops.triton.activations import act_and_mul
from tracellm.engine.model_executor.ops.triton.attention import paged_attention
from tracellm.engine.model_executor.ops.triton.cache import reshape_and_cache
from tracellm.engine.model_executor.ops.triton.norms import fused_add_rms_norm, rms_norm
from tracellm.engine.model_executor.ops.triton.rotary import rotary_embedding
from tracellm.engine.model_executor.ops.triton.sampling import apply_top_k_top_p

__all__ = ["TritonOps"]


class TritonOps(Ops):
    """`Ops` as Triton kernels; see `Ops` for what each one computes."""

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.rms_norm`."""
        return rms_norm(x, weight, epsilon)

    def fused_add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """See `Ops.fused_add_rms_norm`."""
        return fused_add_rms_norm(x, residual, weight, epsilon)

    def gemma_rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.gemma_rms_norm`."""
        return rms_norm(x, weight, epsilon, add_one=True)

    def rotary_embedding(
        self, positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Ops.rotary_embedding`."""
        return rotary_embedding(positions, query, key, cos_sin_cache)

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.silu_and_mul`."""
        return act_and_mul(x, gelu=False)

    def gelu_tanh_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.gelu_tanh_and_mul`."""
        return act_and_mul(x, gelu=True)

    def reshape_and_cache(
        self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        """See `Ops.reshape_and_cache`."""
        reshape_and_cache(key, value, key_cache, value_cache, slot_mapping)

    def apply_top_k_top_p(self, logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
        """See `Ops.apply_top_k_top_p`."""
        return apply_top_k_top_p(logits, top_k, top_p)

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
        """See `Ops.paged_attention`."""
        return paged_attention(query, key_cache, value_cache, metadata, scale, sliding_window, logits_soft_cap)
