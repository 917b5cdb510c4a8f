"""Pooling: vectors from a prompt's hidden states instead of new tokens.

`pooling_params.py` has the parameters of a request, `tasks.py` the tasks of an engine, and `metadata.py` the requests
of a step, as the pooler (`model_executor/layers/pooler.py`) gets them.

vLLM: vllm/v1/pool/, vllm/pooling_params.py and vllm/tasks.py.
"""
