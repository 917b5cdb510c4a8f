"""One step of a vLLM's engine core: what was scheduled, and what became of it.

vLLM: vllm/v1/engine/core.py, vllm/v1/core/sched/, vllm/v1/core/.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
