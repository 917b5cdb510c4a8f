"""Start-up of a vLLM: from `LLM(...)` to an engine that waits for requests.

vLLM: vllm/entrypoints/llm.py, vllm/engine/arg_utils.py, vllm/config/, vllm/model_executor/model_loader/.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
