"""The operations of a vLLM that its layers are made of; shapes and dtypes tell what each read and wrote.

vLLM: vllm/_custom_ops.py, vllm/v1/attention/backends/.
"""

from tracellm.probes.catalog.vllm.entries import plain

__all__ = ["ENTRIES"]

_OPS = "_custom_ops"

ENTRIES = (
    *plain("kernel", _OPS, "rms_norm", "fused_add_rms_norm", "rotary_embedding"),
    *plain("kernel", _OPS, "reshape_and_cache", "reshape_and_cache_flash"),
    *plain("kernel", _OPS, "cpu_attn_reshape_and_cache", "cpu_attention_with_kv_cache"),
    *plain("kernel", "v1.attention.backends.*", "*Impl.forward"),
)
