"""Operations as Triton kernels, for a GPU; under TRITON_INTERPRET=1 they run on the CPU, for reading and testing."""

from tracellm.engine.model_executor.ops.triton.triton_ops import TritonOps

__all__ = ["TritonOps"]
