"""Probes: decorators that record calls, put on an engine from outside, by a catalog, for as long as somebody asks.

From the floor up; each room uses only those above it in this list:

- `context/`: which call is under way where; clocks, ids, what is kept of an exception;
- `wrapping/`: the wrapper of a probed function, and what it copies of a call;
- `record/`: records on their way into the record file of their process;
- `catalog/`: which functions of an engine are probed, and what is kept of each call;
- `spans/`: spans out of records: builder, encoder, converter of whole files, live feed;
- `install/`: putting wrappers into modules, and taking them out again;
- `propagation/`: threads and processes that a recorded call starts;
- `otel/`: OpenTelemetry in the recorded program; `export/`: sending spans to a collector;
- `recording.py`: `Recording`, all of it together; `decorator.py`: `@tracellm.probe`, for a user's own functions.
"""

from tracellm.probes.decorator import probe

__all__ = ["probe"]
