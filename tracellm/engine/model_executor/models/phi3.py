"""Phi-3, Phi-3.5 and Phi-4-mini: Llama with a window, its own rotary embedding for long texts, and merged projections.

In the checkpoint one tensor, `qkv_proj`, holds the query, key and value projections, and one, `gate_up_proj`, gate and
up: just what the merged layers of this engine keep in memory anyhow. Phi-4-mini rotates three quarters of each head.
What the rotary embedding `longrope` does: layers/rotary_embedding/phi3_long_rope_scaled_rope.py.
(https://arxiv.org/abs/2404.14219)

vLLM: vllm/model_executor/models/phi3.py. Left out: what llama.py leaves out.
"""

from typing import ClassVar

from tracellm.engine.model_executor.models.llama import LlamaForCausalLM

__all__ = ["Phi3ForCausalLM"]


class Phi3ForCausalLM(LlamaForCausalLM):
    """The model with its output layer."""

    packed_modules_mapping: ClassVar = {}  # the checkpoint's tensors are merged already
