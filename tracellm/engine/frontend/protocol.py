"""What whoever runs an asynchronous engine asks it about itself: is it well, what is it, how does it do?

The server asks; `AsyncLLM` is such an engine, and adds what requests need.

vLLM: vllm/engine/protocol.py::EngineClient, where all of it is abstract, because there are several.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

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
    """The engine as a whole."""

    vllm_config: VllmConfig
    model_config: ModelConfig
    processor: Processor
    engine_core: AsyncMPClient
    logger_manager: StatLoggerManager | None
    """`None` when no statistics are kept."""
    output_handler: asyncio.Task[None] | None
    """`None` before the first request."""

    @property
    def is_running(self) -> bool:
        """Does the output handler run, or will the next request start it?"""
        handler = self.output_handler
        return handler is None or not handler.done() or handler.get_loop().is_closed()

    @property
    def is_stopped(self) -> bool:
        """The same as `errored`."""
        return self.errored

    @property
    def errored(self) -> bool:
        """Can no request be served any more?"""
        return self.engine_core.resources.engine_dead or not self.is_running

    @property
    def dead_error(self) -> EngineDeadError:
        """What every request gets to hear when `errored`."""
        resources = self.engine_core.resources
        if resources.engine_dead:
            return resources.dead_error()
        return EngineDeadError("The task that receives this engine's outputs has ended. Make a new engine.")

    async def check_health(self) -> None:
        """Return when requests can be served.

        Raises:
            EngineDeadError: they cannot.
        """
        if self.errored:
            raise self.dead_error

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast | None:
        """The model's tokenizer; `None` under `skip_tokenizer_init`."""
        return self.processor.tokenizer

    async def get_tokenizer(self) -> PreTrainedTokenizerFast:
        """The model's tokenizer.

        Raises:
            EngineError: there is none, under `skip_tokenizer_init`.
        """
        if self.tokenizer is None:
            raise EngineError("This AsyncLLM has no tokenizer: it was made with skip_tokenizer_init=True.")
        return load_complete_tokenizer(self.tokenizer)

    async def get_vllm_config(self) -> VllmConfig:
        """All settings."""
        return self.vllm_config

    async def get_model_config(self) -> ModelConfig:
        """The model's part of the settings."""
        return self.model_config

    async def is_tracing_enabled(self) -> bool:
        """Does the engine itself make spans? Never: recordings are made from outside. `trace_headers` travel anyhow."""
        return False

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached KV blocks; `False`, and nothing done, while requests hold blocks. vLLM returns nothing."""
        return await self.engine_core.reset_prefix_cache_async()

    async def do_log_stats(self) -> None:
        """Let the loggers say what happened since the last time. vLLM's server calls it every ten seconds."""
        if self.logger_manager is not None:
            self.logger_manager.log()

    @property
    def prometheus_registry(self) -> CollectorRegistry | None:
        """The metrics of this engine, to be served at /metrics; `None` when no statistics are kept."""
        return None if self.logger_manager is None else self.logger_manager.prometheus_registry

    def encode(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: it is for models that embed, of which tracellm has none."""
        raise EngineError(
            "AsyncLLM.encode is for embedding models, which tracellm does not run, but vLLM does: use `generate`."
        )
