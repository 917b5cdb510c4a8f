"""Entry points of users: `LLM` for scripts, `openai/` for the server."""
