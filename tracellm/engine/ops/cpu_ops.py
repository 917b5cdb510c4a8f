"""The operations as a CPU computes them fastest; those that are not here are the reference's (torch_ops.py)."""

from tracellm.engine.ops.torch_ops import TorchOps

__all__ = ["CpuOps"]


class CpuOps(TorchOps):
    """`Ops` for a CPU."""
