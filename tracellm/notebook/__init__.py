"""A recorded run as Python objects, for notebooks and scripts: steps, requests, blocks, diagrams, and data frames.

`tracellm.explain()` and `tracellm.open_run(path)` return a `run.Run`. All facts are those of `tracellm.report`, so a
notebook and the report page agree. vLLM has no counterpart.
"""
