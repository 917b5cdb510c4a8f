"""A vLLM's executors, workers and model runners.

vLLM: vllm/v1/executor/, vllm/v1/worker/.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
