"""The operations of a vLLM that its layers are made of.

vLLM: vllm/_custom_ops.py, vllm/v1/attention/.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
