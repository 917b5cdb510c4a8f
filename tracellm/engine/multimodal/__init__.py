"""Images and sound in a request: their data structures. vLLM: vllm/multimodal."""
