"""`TritonOps`: each operation launches the kernel of its file; matrix products are left to PyTorch.

Each file (norms.py, rotary.py, activations.py, sampling.py) opens with the kernel's maths, tiling and memory traffic,
and a drawing. Attention's kernels are in tracellm/engine/attention/ops.

vLLM: vllm/_custom_ops.py, which calls CUDA kernels.
"""

from torch import Tensor

from tracellm.engine.model_executor.ops.interface import Ops
from tracellm.engine.model_executor.ops.triton.activations import act_and_mul
from tracellm.engine.model_executor.ops.triton.norms import fused_add_rms_norm, rms_norm
from tracellm.engine.model_executor.ops.triton.rotary import rotary_embedding
from tracellm.engine.model_executor.ops.triton.sampling import apply_top_k_top_p

__all__ = ["TritonOps"]


class TritonOps(Ops):
    """`Ops` as Triton kernels; see `Ops` for what each operation computes."""

    name = "triton"

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

    def apply_top_k_top_p(self, logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
        """See `Ops.apply_top_k_top_p`."""
        return apply_top_k_top_p(logits, top_k, top_p)
