"""What comes back from a vLLM's engine core, and the end of a request.

vLLM: vllm/v1/engine/output_processor.py, detokenizer.py.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
