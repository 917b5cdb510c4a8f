"""The operations of the model's layers, and their implementations, of which an engine uses one.

Read `interface.py` first (what each operation is), then `torch_ops.py` (how it is computed), then `choice.py` (which
implementation is used, and why).
"""

from tracellm.engine.model_executor.ops.choice import current_ops, make_ops, using_ops
from tracellm.engine.model_executor.ops.interface import AttentionMetadata, Ops

__all__ = ["AttentionMetadata", "Ops", "current_ops", "make_ops", "using_ops"]
