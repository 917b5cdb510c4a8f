"""The recording as plain data: spans, processes and links; how they are written, read and compared.

- `names/`: every attribute a span may carry; `model.py`: spans and the trace that holds them;
- `otlp/`: the file form; `run_folder.py`: a run on disk, `problems.py`: what may be wrong with it, `repair.py`: spans
  of which a tree can be made; `merge.py`: the clocks of its processes made one, `messages.py`: their messages;
- `expect/`: a run held against a diagram or a table; `compare/`: two runs held against each other;
- `steps.py`: the engine's steps, read from their spans.
"""
