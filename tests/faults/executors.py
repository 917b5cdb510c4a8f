"""Failing executors for an engine process, which imports this module."""

from typing import Any

from tracellm.engine.executor.uniproc_executor import UniProcExecutor


class Raises(UniProcExecutor):
    """An executor that raises an error other than `EngineError` at the engine's start."""

    def _init_executor(self) -> None:
        raise RuntimeError("the device is on fire")


class FailsInAStep(UniProcExecutor):
    """An executor that fails in its first step with requests."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Raise."""
        raise RuntimeError("the device is on fire")
