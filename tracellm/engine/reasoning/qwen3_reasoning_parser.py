"""`Qwen3ReasoningParser`: reasoning begins with `<think>`, which a model may leave out.

vLLM: vllm/reasoning/qwen3_reasoning_parser.py::Qwen3ReasoningParser.
"""

from tracellm.engine.reasoning.basic_parsers import BaseThinkingReasoningParser

__all__ = ["Qwen3ReasoningParser"]


class Qwen3ReasoningParser(BaseThinkingReasoningParser):
    """Parser for models that reason or not, as the prompt asks."""

    starts_in_reasoning = False
