"""The parts of `benchmarks/compare.py`: engines in their own processes, the rounds, and the tables.

Read `protocol.py` (messages and the engine's side), the engines `tracellm_engine.py`, `transformers_engine.py` and
`vllm_engine.py`, `process.py` (the benchmark's side), then `rounds.py`.
"""
