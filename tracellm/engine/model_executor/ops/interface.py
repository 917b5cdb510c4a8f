"""Interface of a layer's operations other than attention: what a kernel library must provide.

A layer calls `self.ops.rms_norm(...)` without knowing the implementation: `TorchOps` (torch_ops.py), the reference,
`CpuOps` (cpu_ops.py) or `TritonOps` (triton/). choice.py selects it. Attention is in tracellm/engine/attention.

In a request's life: every layer of every step. vLLM: vllm/_custom_ops.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from tracellm.engine.attention.backend import AttentionMetadata

__all__ = ["Ops"]


class Ops(ABC):
    """Operations of the layers. Shapes: T tokens of the step, H query heads, K key/value heads, D head size."""

    name: ClassVar[str]
    """`torch`, `cpu` or `triton`."""

    def prepare_weights(self, model: nn.Module) -> None:  # noqa: B027  (optional)
        """Convert the loaded weights to the layout that `linear` reads. vLLM: `process_weights_after_loading`."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`x @ weight.T + bias`, by PyTorch's libraries (oneDNN, cuBLAS).

        Shapes: x [..., n], weight [m, n] or its layout from `prepare_weights`, bias [m].
        """
        return F.linear(x, weight, bias)

    def decoder_layers(
        self, layers: nn.ModuleList, positions: Tensor, hidden_states: Tensor, metadata: AttentionMetadata | None
    ) -> tuple[Tensor, Tensor] | None:
        """Compute all decoder layers (`Qwen2DecoderLayer`) in one call, with the bits of calling them one by one.

        Args:
            layers: all decoder layers of the model.
            positions: int64 [T]; with [3, T] (M-RoPE) the result is None.
            hidden_states: the embeddings [T, hidden].
            metadata: attention metadata that all layers share, or None.

        Returns:
            The last layer's output and the residual stream, [T, hidden]; None: the layers must be called one by one.
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
        """`silu(gate) * up` for x [T, 2n], the gate in its first half and up in its second; [T, n]."""

    @abstractmethod
    def gelu_tanh_and_mul(self, x: Tensor) -> Tensor:
        """`gelu(gate) * up`, gelu by its tanh approximation; x [T, 2n] as in `silu_and_mul`, the result [T, n]."""

    @abstractmethod
    def apply_top_k_top_p(self, logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
        """Set the logits outside of each row's top-k and top-p to minus infinity; called by the sampler.

        First top-k: logits below the k-th largest are masked; ties with it stay, so more than k can. Then top-p, on the
        remaining probabilities: the fewest most probable tokens that together reach p stay, at least one.

        Shapes: logits float32 [N, V], top_k int [N] in 1 .. V, top_p float32 [N] in (0, 1]; None: not in any row.
        """
