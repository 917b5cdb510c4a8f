"""`EngineClient`: health, settings and statistics of an asynchronous engine; the base class of `AsyncLLM`.

The server uses it for everything but requests.

vLLM: vllm/engine/protocol.py::EngineClient, which is abstract, as it has several implementations.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.config.tokenizer import load_complete_tokenizer
from tracellm.engine.config.vllm_config import ModelConfig, VllmConfig
from tracellm.engine.frontend.processor import Processor

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.ipc.mp_client import AsyncMPClient
    from tracellm.engine.metrics.loggers import StatLoggerManager

__all__ = ["EngineClient"]


class EngineClient:
    """State of an asynchronous engine as a whole; used by the server."""

    vllm_config: VllmConfig
    model_config: ModelConfig
    processor: Processor
    engine_core: AsyncMPClient
    logger_manager: StatLoggerManager | None
    """None without statistics."""
    output_handler: asyncio.Task[None] | None
    """None before the first request."""

    @property
    def is_running(self) -> bool:
        """True if the output handler runs, or the next request will start it."""
        handler = self.output_handler
        return handler is None or not handler.done() or handler.get_loop().is_closed()

    @property
    def is_stopped(self) -> bool:
        """Same as `errored`."""
        return self.errored

    @property
    def errored(self) -> bool:
        """True if the engine can serve no more requests."""
        return self.engine_core.resources.engine_dead or not self.is_running

    @property
    def dead_error(self) -> EngineDeadError:
        """Exception that requests raise when `errored`."""
        resources = self.engine_core.resources
        if resources.engine_dead:
            return resources.dead_error()
        return EngineDeadError("The task that receives this engine's outputs has ended. Make a new engine.")

    async def check_health(self) -> None:
        """Check that requests can be served.

        Raises:
            EngineDeadError: they cannot.
        """
        if self.errored:
            raise self.dead_error

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast | None:
        """Tokenizer of the model; None under `skip_tokenizer_init`."""
        return self.processor.tokenizer

    async def get_tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the model's tokenizer.

        Raises:
            EngineError: the engine was made with `skip_tokenizer_init`.
        """
        if self.tokenizer is None:
            raise EngineError("This AsyncLLM has no tokenizer: it was made with skip_tokenizer_init=True.")
        return load_complete_tokenizer(self.tokenizer)

    async def get_vllm_config(self) -> VllmConfig:
        """Return all settings."""
        return self.vllm_config

    async def get_model_config(self) -> ModelConfig:
        """Return the model's settings."""
        return self.model_config

    async def is_tracing_enabled(self) -> bool:
        """Return whether spans are sent to `otlp_traces_endpoint`."""
        return self.vllm_config.observability_config.otlp_traces_endpoint is not None

    async def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. Return False, and change nothing, while requests hold blocks; vLLM returns None."""
        return await self.engine_core.reset_prefix_cache_async()

    async def do_log_stats(self) -> None:
        """Log statistics since the last call; vLLM's server calls it every ten seconds."""
        if self.logger_manager is not None:
            self.logger_manager.log()

    @property
    def prometheus_registry(self) -> CollectorRegistry | None:
        """Metrics to serve at /metrics; None without statistics."""
        return None if self.logger_manager is None else self.logger_manager.prometheus_registry
