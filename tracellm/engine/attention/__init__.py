"""Attention backends: how a layer's queries attend over the paged KV cache.

Read `backend.py` first (the interface), then `backends/torch_attn.py` (the readable reference), then `selector.py`.
vLLM: vllm/v1/attention.
"""
