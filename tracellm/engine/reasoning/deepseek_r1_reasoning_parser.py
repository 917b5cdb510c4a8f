"""`DeepSeekR1ReasoningParser`: everything up to `</think>` is reasoning, as the prompt may hold the `<think>`.

vLLM: vllm/reasoning/deepseek_r1_reasoning_parser.py::DeepSeekR1ReasoningParser.
"""

from tracellm.engine.reasoning.basic_parsers import BaseThinkingReasoningParser

__all__ = ["DeepSeekR1ReasoningParser"]


class DeepSeekR1ReasoningParser(BaseThinkingReasoningParser):
    """Parser for models that always reason."""

    starts_in_reasoning = True
