"""A vLLM's sampler, and what it is asked for.

vLLM: vllm/v1/sample/.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
