"""A request to a vLLM on its way from the user's line to the scheduler's queue.

vLLM: vllm/v1/engine/llm_engine.py, processor.py (input_processor.py in later versions).
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
