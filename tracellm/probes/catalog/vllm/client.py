"""Which client a vLLM chose: the inputs, the rule that decided, and what came out.

vLLM: vllm/v1/engine/core_client.py.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
