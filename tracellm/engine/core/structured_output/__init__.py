"""Structured outputs: a request's form (a JSON schema, a regular expression, ...) as a mask over the vocabulary.

Begin with `manager.py`, which has the whole path. vLLM: vllm/v1/structured_output/.
"""
