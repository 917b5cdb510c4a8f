"""Structured outputs: a request's constraint (a JSON schema, a regular expression, ...) as a mask over the vocabulary.

Start with `manager.py`, which describes the whole path.

vLLM: vllm/v1/structured_output/.
"""
