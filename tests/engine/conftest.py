"""Makes the checkpoints of tests/checkpoints.py available to all engine tests."""

from tests.checkpoints import family_checkpoint, opt_checkpoint, qwen2_checkpoint

__all__ = ["family_checkpoint", "opt_checkpoint", "qwen2_checkpoint"]
