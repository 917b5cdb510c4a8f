"""Front end of the engine: from prompts to `EngineCoreRequest`s, and from `EngineCoreOutput`s to `RequestOutput`s.

vLLM: vllm/v1/engine, without the engine core and its clients.
"""
