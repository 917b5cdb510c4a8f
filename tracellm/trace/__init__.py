"""The recording as plain data: spans, processes and links; how they are written, read and compared.

- `names.py`: every attribute of a span; `model.py`: spans and the trace that holds them;
- `otlp/`: the file format; `run_folder.py`: a run on disk, `problems.py`: its possible problems;
- `merge.py`: spans of several files as one sound trace, on one clock; `messages.py`: messages between processes;
- `expect/`: the check of a run against a diagram or a table; `compare/`: the comparison of two runs;
- `steps.py`: the engine's steps, read from their spans; `replay.py`: the KV cache, block by block.
"""
