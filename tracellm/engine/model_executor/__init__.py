"""The model: architectures, the layers they consist of, the operations of each device, the weight loader.

vLLM: vllm/model_executor and csrc.
"""
