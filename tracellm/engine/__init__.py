"""A complete small LLM engine, shaped like vLLM V1 (0.11.1)."""
