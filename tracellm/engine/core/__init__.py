"""The engine core: the step loop, the scheduler, the KV cache and structured outputs.

vLLM: vllm/v1/engine/core.py, vllm/v1/core, vllm/v1/structured_output.
"""
