"""Configuration of an engine: its arguments, what they are checked against, the model's files, users' errors.

vLLM: vllm/config, vllm/engine/arg_utils.py, vllm/transformers_utils, vllm/envs.py.
"""
