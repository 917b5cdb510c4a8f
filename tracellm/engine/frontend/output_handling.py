"""The task that receives what the engine core's steps bring, and hands each request its part.

`AsyncLLM._run_output_handler` starts it. It runs as long as the engine does, and beside all the `generate`s that read
their requests' queues.

vLLM: vllm/v1/engine/async_llm.py, `output_handler` within `AsyncLLM._run_output_handler`; a function of its own here,
so that it can be shown in a recording.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.frontend.output_processor import OutputProcessor
from tracellm.engine.ipc.messages import EngineCoreOutputs
from tracellm.engine.metrics.stats import IterationStats

if TYPE_CHECKING:
    from tracellm.engine.ipc.mp_client import AsyncMPClient
    from tracellm.engine.metrics.loggers import StatLoggerManager

__all__ = ["output_handler"]

logger = logging.getLogger(__name__)

_CHUNK_SIZE = 128
"""So many outputs are processed at a time; then other tasks may run. vLLM: VLLM_V1_OUTPUT_PROC_CHUNK_SIZE."""


async def output_handler(
    engine_core: AsyncMPClient, output_processor: OutputProcessor, logger_manager: StatLoggerManager | None
) -> None:
    """Receive, process, put into the queues; forever. When that is over, every reader is told by an error."""
    try:
        while True:
            outputs = await engine_core.get_output_async()
            await _handle(outputs, engine_core, output_processor, logger_manager)
    except asyncio.CancelledError:  # the engine was shut down, or the event loop ends
        cut_off = EngineDeadError("The engine was shut down, or its event loop was ended, while this request ran.")
        await engine_core.abort_requests_async(output_processor.propagate_error(cut_off))
        raise
    except EngineDeadError as error:
        output_processor.propagate_error(error)
    except Exception as error:
        logger.exception("The output handler has failed; no request of this engine can go on.")
        output_processor.propagate_error(error)


async def _handle(
    outputs: EngineCoreOutputs,
    engine_core: AsyncMPClient,
    output_processor: OutputProcessor,
    logger_manager: StatLoggerManager | None,
) -> None:
    """One step's outputs, a chunk at a time."""
    iteration_stats = IterationStats() if logger_manager is not None and outputs.outputs else None
    for start in range(0, len(outputs.outputs), _CHUNK_SIZE):
        if start:
            await asyncio.sleep(0)
        chunk = outputs.outputs[start : start + _CHUNK_SIZE]
        processed = output_processor.process_outputs(chunk, outputs.timestamp, iteration_stats)
        assert not processed.request_outputs, "every request has a queue"
        if processed.reqs_to_abort:  # a stop string ended them, or an error
            await engine_core.abort_requests_async(processed.reqs_to_abort)
    if logger_manager is not None:
        logger_manager.record(outputs.scheduler_stats, iteration_stats, engine_idx=outputs.engine_index)
