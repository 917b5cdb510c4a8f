"""The functions that are probed, and what is recorded of a call.

`engine/` has the entries of our engine and those that vLLM shares, `vllm/` those where vLLM differs. The engines do not
know of the catalog; a test fails where they disagree. `request_tracker.py` joins what no single call knows.
"""

from tracellm.probes.catalog.engine import CATALOG
from tracellm.probes.catalog.vllm import CATALOG as VLLM

__all__ = ["CATALOG", "EVERY_ENGINE"]

EVERY_ENGINE = (*CATALOG, *VLLM)
"""Default entries of a recording, which cannot know the engine that a script will use. Entries of an engine that is
never imported cost nothing."""
