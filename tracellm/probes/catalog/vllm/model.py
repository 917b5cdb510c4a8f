"""A vLLM's models and their layers.

vLLM: vllm/model_executor/models/, vllm/model_executor/layers/.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
