"""What `benchmarks/compare.py` is made of: engines in processes of their own, the rounds, and the tables.

Read `protocol.py` (how an engine is asked), `tracellm_engine.py`, `transformers_engine.py` and `vllm_engine.py` (who
answers), `process.py` (who asks), then `rounds.py`.
"""
