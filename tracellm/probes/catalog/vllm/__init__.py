"""Functions of a vLLM to probe: those of `catalog/engine/` that both have, and here those where vLLM differs.

Nothing here imports vLLM: an entry names a function by its module, and is installed once the program has imported that.
A name that only other versions have is in `Entry.other_targets`; the first is that of 0.11.1. A new version needs new
names, not new code.
"""

from tracellm.probes.catalog.engine import SHARED
from tracellm.probes.catalog.vllm import processes, request, runner, startup, step

__all__ = ["CATALOG", "PACKAGE"]

PACKAGE = "vllm"
"""Package of all functions."""

CATALOG = (*startup.ENTRIES, *processes.ENTRIES, *request.ENTRIES, *step.ENTRIES, *runner.ENTRIES, *SHARED)
"""All entries. If several match a function, the first counts."""
