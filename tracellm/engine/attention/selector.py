"""Selects the attention backend of a layer by name, importing only that backend.

At start-up: `Attention.__init__` selects the backend that belongs to its operations (model_executor/ops/choice.py
chooses both). vLLM: vllm/v1/attention/selector.py.
"""

from tracellm.engine.attention.backend import AttentionBackend
from tracellm.engine.model_executor.ops.cpu import native

__all__ = ["get_attn_backend"]


def get_attn_backend(name: str) -> type[AttentionBackend]:
    """Return the backend `torch`, `cpu` or `triton`; `torch` instead of `cpu` where its kernels cannot be compiled."""
    if name == "triton":
        from tracellm.engine.attention.backends.triton_attn import TritonAttentionBackend

        return TritonAttentionBackend
    if name == "cpu" and native.load().library is not None:
        from tracellm.engine.attention.backends.cpu_attn import CPUAttentionBackend

        return CPUAttentionBackend
    from tracellm.engine.attention.backends.torch_attn import TorchAttentionBackend

    return TorchAttentionBackend
