"""The functions that are probed, and what of a call is worth recording there.

Each file of `engine/` and of `vllm/` lists its `ENTRIES`: which function, how deep it sits, and what is kept of a call.
The engines know nothing of this; where an entry and an engine disagree, a test fails. `request_tracker.py` puts
together what no single call knows.
"""

from tracellm.probes.catalog.engine import CATALOG
from tracellm.probes.catalog.vllm import CATALOG as VLLM

__all__ = ["CATALOG", "EVERY_ENGINE"]

EVERY_ENGINE = (*CATALOG, *VLLM)
"""The entries of a recording by default, as it cannot know which engine a script will use; what is never imported costs
nothing."""
