"""`TritonOps`: each operation launches the kernel of its file; the products of matrices are left to torch."""

from tracellm.engine.ops.torch_ops import TorchOps

__all__ = ["TritonOps"]


class TritonOps(TorchOps):
    """`Ops` as Triton kernels."""
