"""Fixtures of other parts that the tests here use."""

from tests.checkpoints import family_checkpoint
from tests.cli.conftest import command

__all__ = ["command", "family_checkpoint"]
