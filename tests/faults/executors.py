"""Executors that fail, for an engine process to be started with: it imports this module."""

from typing import Any

from tracellm.engine.executor.uniproc_executor import UniProcExecutor


class Raises(UniProcExecutor):
    """It raises what is no `EngineError` while the engine starts."""

    def _init_executor(self) -> None:
        raise RuntimeError("the device is on fire")


class FailsInAStep(UniProcExecutor):
    """It starts, and fails in the first step with requests."""

    def execute_model(self, scheduler_output: Any) -> Any:
        """Raise."""
        raise RuntimeError("the device is on fire")
