"""Probes: what of a run is recorded, where, and at what cost. They record; `tracellm.report` tells.

- `decorator.py`: `@tracellm.probe`, for a user's own functions;
- `catalog/`: what to probe in the engine, and what to keep of each call;
- `session.py`: `Recording`, which installs the catalog, records, and writes the trace;
- `wrap.py`, `state.py`: the hot path; `build.py`, `ledger.py`, `writer.py`: everything that waits.
"""

from tracellm.probes.decorator import probe

__all__ = ["probe"]
