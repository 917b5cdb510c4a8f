"""The operations of the model's layers: `from tracellm.engine.ops import ops`, then `ops.rms_norm(...)`.

Read `interface.py` first (what each operation is), then `torch_ops.py` (how it is computed).
"""

from tracellm.engine.ops.interface import AttentionMetadata, Ops
from tracellm.engine.ops.torch_ops import TorchOps

__all__ = ["AttentionMetadata", "Ops", "ops"]

ops: Ops = TorchOps()
"""The operations in use, the one object that all layers call."""
