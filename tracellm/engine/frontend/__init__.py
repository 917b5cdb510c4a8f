"""The front end of the engine: from a prompt to an `EngineCoreRequest`, and from its outputs to `RequestOutput`s.

vLLM: vllm/v1/engine, without the engine core and its clients.
"""
