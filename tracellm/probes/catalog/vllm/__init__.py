"""What to probe in a vLLM, region by region; the files have the names of those beside this folder, and their words.

Nothing here imports vLLM: an entry names a function of it by its module, and is looked up once somebody else has
imported that. What one version calls otherwise than another is written beside it (`Entry.other_targets`), the version
of the documents, 0.11.1, first. So a new version is more names, not more code.
"""

from tracellm.probes.catalog.vllm import (
    client,
    kernels,
    model,
    outputs,
    processes,
    request,
    runner,
    sampling,
    server,
    startup,
    step,
)

__all__ = ["CATALOG", "PACKAGE"]

PACKAGE = "vllm"
"""The package that all entries are about."""

CATALOG = (
    *startup.ENTRIES,
    *client.ENTRIES,
    *processes.ENTRIES,
    *server.ENTRIES,
    *request.ENTRIES,
    *outputs.ENTRIES,
    *step.ENTRIES,
    *runner.ENTRIES,
    *sampling.ENTRIES,
    *model.ENTRIES,
    *kernels.ENTRIES,
)
"""Every entry. Where two match the same function, the first counts."""
