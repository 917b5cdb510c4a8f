"""Triton kernels of the `triton` attention backend. Read attention_loop.py first. vLLM: vllm/v1/attention/ops."""
