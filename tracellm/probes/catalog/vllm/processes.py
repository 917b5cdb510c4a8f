"""A vLLM's engine core in a process of its own, and what is said to it.

vLLM: vllm/v1/engine/core.py::EngineCoreProc, vllm/v1/engine/utils.py, vllm/v1/serial_utils.py.
"""

from tracellm.probes.spec import Entry

__all__ = ["ENTRIES"]

ENTRIES: tuple[Entry, ...] = ()
