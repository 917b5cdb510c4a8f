"""Configuration: arguments and their validation, resolved settings, model files, and the engine's exceptions.

vLLM: vllm/config, vllm/engine/arg_utils.py, vllm/transformers_utils, vllm/envs.py.
"""
