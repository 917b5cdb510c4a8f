"""Operations of the model's layers, and their implementations, one of which an engine uses.

Read `interface.py` first (what each operation is), then `torch_ops.py` (how it is computed), then `choice.py` (which
implementation is used, and why).
"""

from tracellm.engine.model_executor.ops.choice import current_ops, make_ops, using_ops
from tracellm.engine.model_executor.ops.interface import Ops

__all__ = ["Ops", "current_ops", "make_ops", "using_ops"]
