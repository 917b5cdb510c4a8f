"""From a model's name to a model that can run: find the files, read them, place them on the device.

vLLM: vllm/model_executor/model_loader/. `get_model` there makes a loader and calls `load_model`; the model runner does
here.
"""

from tracellm.engine.model_executor.model_loader.default_loader import DefaultModelLoader

__all__ = ["DefaultModelLoader"]
