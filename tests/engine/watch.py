"""Helpers that inspect a whole `LLM`."""

from collections.abc import Iterable

from tracellm import LLM
from tracellm.engine.frontend.outputs import RequestOutput

__all__ = ["is_idle", "token_ids"]


def token_ids(outputs: Iterable[RequestOutput]) -> list[list[int]]:
    """Return the generated tokens of each request's first output."""
    return [list(output.outputs[0].token_ids) for output in outputs]


def is_idle(llm: LLM) -> bool:
    """Return whether no request is left on either side."""
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]
    pool = scheduler.kv_cache_manager.block_pool
    processor = llm.llm_engine.output_processor
    held = (processor.request_states, processor.parent_requests, scheduler.requests, scheduler.running)
    return not any(held) and not scheduler.waiting and pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
