"""Probes: wrappers that record calls of an engine, installed from outside by a catalog while a recording is active.

Each package or module imports only from those above it in this list:

- `context/`: the call under way; clock, ids, exceptions;
- `wrapping/`: the wrapper of a probed function, and its summary of arguments;
- `record/`: the buffer of records and the record file of each process;
- `catalog/`: the probed functions of each engine, and what is kept of their calls;
- `spans/`: spans made of records: builder, encoder, converter of whole files, live feed;
- `install/`: installation of wrappers in modules, and their removal;
- `propagation/`: threads and processes that a recorded call starts;
- `otel/`: OpenTelemetry in the recorded program; `export/`: sending spans to a collector;
- `recording.py`: `Recording`, which uses all of these; `decorator.py`: `@tracellm.probe`, for a user's own functions;
  `join.py`: how child processes join a recording; `overhead.py`: the cost of a recording.
"""

from tracellm.probes.decorator import probe

__all__ = ["probe"]
