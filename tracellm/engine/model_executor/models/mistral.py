"""Mistral: Llama, where a token sees no further back than a window of tokens.

After n layers what a token knows still reaches n windows back, as each layer hands on what the one below has gathered.
(https://arxiv.org/abs/2310.06825. Later Mistrals have `sliding_window: null` in config.json, and see everything.)

vLLM: the registry names vllm/model_executor/models/llama.py::LlamaForCausalLM for it. Left out: what llama.py leaves
out.
"""

from tracellm.engine.model_executor.models.llama import LlamaForCausalLM

__all__ = ["MistralForCausalLM"]


class MistralForCausalLM(LlamaForCausalLM):
    """The model with its output layer. `LlamaAttention` reads the window from config.json; nothing else differs."""
