"""Model loading: find the weight files, place the model on its device, read the weights into it.

vLLM: vllm/model_executor/model_loader/, whose `get_model` creates a loader; here the model runner does.
"""

from tracellm.engine.model_executor.model_loader.default_loader import DefaultModelLoader

__all__ = ["DefaultModelLoader"]
