"""Phi-3, Phi-3.5 and Phi-4-mini: Llama with a sliding window, a rotary embedding for long texts, merged projections.

The checkpoint's tensors `qkv_proj` and `gate_up_proj` are merged already, as in this engine's layers. Phi-4-mini
rotates three quarters of each head. The rotary embedding `longrope` is in layers/rope_scaling.py.
(https://arxiv.org/abs/2404.14219)

vLLM: vllm/model_executor/models/phi3.py. Left out: what llama.py leaves out.
"""

from typing import ClassVar

from tracellm.engine.model_executor.models.llama import LlamaForCausalLM

__all__ = ["Phi3ForCausalLM"]


class Phi3ForCausalLM(LlamaForCausalLM):
    """Model with its output layer."""

    packed_modules_mapping: ClassVar = {}  # the checkpoint's tensors are merged already
