"""A vLLM's asynchronous engine, and the OpenAI server before it.

vLLM: vllm/v1/engine/async_llm.py, vllm/entrypoints/openai/.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
