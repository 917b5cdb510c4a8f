"""Mistral: Llama with a sliding window.

Information still travels n windows back in n layers, one window per layer. (https://arxiv.org/abs/2310.06825. Later
Mistrals have `sliding_window: null` in config.json: full attention.)

vLLM: registered as vllm/model_executor/models/llama.py::LlamaForCausalLM. Left out: what llama.py leaves out.
"""

from tracellm.engine.model_executor.models.llama import LlamaForCausalLM

__all__ = ["MistralForCausalLM"]


class MistralForCausalLM(LlamaForCausalLM):
    """Model with its output layer; `LlamaAttention` reads the window from config.json."""
