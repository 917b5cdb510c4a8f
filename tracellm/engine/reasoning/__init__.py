"""Reasoning parsers: which part of a model's text is its reasoning, and where a grammar begins to apply.

Used by the server for `reasoning` in messages, and by the engine core, where constraints apply after the reasoning.

vLLM: vllm/reasoning/, with the names of its parsers.
"""

from tracellm.engine.reasoning.abs_reasoning_parsers import ReasoningParser, ReasoningParserManager

__all__ = ["ReasoningParser", "ReasoningParserManager"]
