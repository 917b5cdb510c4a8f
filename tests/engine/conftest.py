"""Makes the checkpoints of tests/checkpoints.py known to all engine tests."""

from tests.checkpoints import opt_checkpoint, qwen2_checkpoint

__all__ = ["opt_checkpoint", "qwen2_checkpoint"]
