"""The operations as Triton kernels, for a GPU; under TRITON_INTERPRET=1 the same kernels run on the CPU, to be read."""

from tracellm.engine.model_executor.ops.triton.triton_ops import TritonOps

__all__ = ["TritonOps"]
