"""Where users enter the engine: `LLM`, for scripts."""
