"""Images and sounds in requests: their data, and the processors that make it.

Nothing is imported here, so that an engine without images and sounds loads none of it.

vLLM: vllm/multimodal.
"""
