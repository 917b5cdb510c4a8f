"""The operations that layers are made of; shapes and dtypes tell what each read and wrote."""

from tracellm.probes.catalog.helpers import plain

__all__ = ["ENTRIES"]

ENTRIES = (
    *plain("kernel", "model_executor.ops.*", "*Ops.rms_norm", "*Ops.fused_add_rms_norm", "*Ops.gemma_rms_norm"),
    *plain("kernel", "model_executor.ops.*", "*Ops.rotary_embedding", "*Ops.gelu_tanh_and_mul"),
    *plain("kernel", "model_executor.ops.*", "*Ops.silu_and_mul"),
    *plain("layer", "attention.backend", "AttentionImpl.forward"),
    *plain("kernel", "attention.backends.*", "*Impl.reshape_and_cache", "*Impl.paged_attention"),
)
