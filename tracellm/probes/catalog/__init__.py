"""The functions that are probed, and what is recorded of a call.

`engine/` has the entries of tracellm's engine and those that vLLM shares, `vllm/` those where vLLM differs. The engines
do not import the catalog; a test fails where they disagree. `request_tracker.py` combines facts of several calls.
"""

from tracellm.probes.catalog.engine import CATALOG
from tracellm.probes.catalog.vllm import CATALOG as VLLM

__all__ = ["CATALOG", "ENTRIES_BY_TARGET", "EVERY_ENGINE"]

EVERY_ENGINE = (*CATALOG, *VLLM)
"""Default entries of a recording, for every engine that a script may use. Entries of an engine that is never imported
cost nothing."""

ENTRIES_BY_TARGET = {entry.target: entry for entry in EVERY_ENGINE}
