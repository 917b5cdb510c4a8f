"""Reasoning and tool calls that the server finds in generated text.

The serving class of chat completions calls the parsers, once for a complete text or for each piece of a stream. Spans
have lengths and the names of called functions; the texts are in the request's span.

vLLM: vllm/entrypoints/openai/tool_parsers/, vllm/reasoning/; later versions: vllm/tool_parsers/, vllm/parser/.
"""

from functools import partial
from typing import Any

from tracellm.probes.catalog.entries import argument, ours_only, vllm_only
from tracellm.trace import names

__all__ = ["ENTRIES"]


def _capture_calls(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    called = [call.function.name for call in result.tool_calls]
    found = [f"tool call of {name}" for name in called] or ["no tool call"]
    text = argument(args, kwargs, 1, "model_output")
    return _facts("model_output", text, found, called, content=result.content)


def _capture_reasoning(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    reasoning, content = result
    text = argument(args, kwargs, 1, "model_output")
    return _facts("model_output", text, [], [], reasoning=reasoning, content=content)


def _capture_delta(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, place: int = 1) -> dict[str, Any]:
    """Capture a piece of a stream, which is the argument at `place`."""
    piece = argument(args, kwargs, place, "delta_text")
    found: list[str] = []
    called: list[str] = []
    reasoning, content = None, None
    if isinstance(result, tuple):
        reasoning, content = result
    elif result is not None:
        reasoning, content = result.reasoning, result.content
        for function in (call.function for call in result.tool_calls if call.function is not None):
            if function.name:
                called.append(function.name)
                found.append(f"tool call of {function.name}")
            found += _lengths(arguments=function.arguments)
    return _facts("delta_text", piece, found, called, reasoning=reasoning, content=content)


def _lengths(**parts: str | None) -> list[str]:
    return [f"{name}: str of {len(part)}" for name, part in parts.items() if part]


def _facts(
    name: str,
    text: str | None,
    found: list[str],
    called: list[str],
    *,
    reasoning: str | None = None,
    content: str | None = None,
) -> dict[str, Any]:
    found += _lengths(reasoning=reasoning, content=content)
    facts: dict[str, Any] = {
        names.ARGUMENTS: [f"{name}=str of {len(text or '')}"],
        names.RESULT: ", ".join(found) or "nothing yet",
    }
    parts = {
        names.PARSED_REASONING: len(reasoning or ""),
        names.PARSED_CONTENT: len(content or ""),
        names.PARSED_TOOL_CALLS: called,
    }
    return facts | {name: part for name, part in parts.items() if part}


_capture_later_delta = partial(_capture_delta, place=3)
"""For vLLM's parsers, which get a piece after the text so far and the text with it."""

_TOOLS = "entrypoints.openai.tool_parsers"
_TOOL_PARSERS = (
    "hermes_tool_parser:Hermes2ProToolParser",
    "llama_tool_parser:Llama3JsonToolParser",
    "mistral_tool_parser:MistralToolParser",
    "pythonic_tool_parser:PythonicToolParser",
)
_DEEPSEEK = "reasoning.deepseek_r1_reasoning_parser:DeepSeekR1ReasoningParser"
_QWEN = "reasoning.qwen3_reasoning_parser:Qwen3ReasoningParser"
_OURS = f"{_TOOLS}.abstract_tool_parser:ToolParser"
_OUR_REASONING = "reasoning.basic_parsers:BaseThinkingReasoningParser"
_PARSER = "parser.abstract_parser:DelegatingParser"

ENTRIES = (
    *ours_only("request", _OUR_REASONING, "extract_reasoning", record=_capture_reasoning),
    *ours_only("step", _OUR_REASONING, "extract_reasoning_streaming", record=_capture_delta),
    *ours_only("request", _OURS, "extract_tool_calls", record=_capture_calls),
    *ours_only("step", _OURS, "extract_tool_calls_streaming", record=_capture_delta),
    *(
        entry
        for home in _TOOL_PARSERS
        for level, function, capture in (
            ("request", "extract_tool_calls", _capture_calls),
            ("step", "extract_tool_calls_streaming", _capture_later_delta),
        )
        for entry in vllm_only(level, f"{_TOOLS}.{home}", function, later=f"tool_parsers.{home}", record=capture)  # type: ignore[arg-type]
    ),
    *vllm_only("request", _DEEPSEEK, "extract_reasoning", record=_capture_reasoning),
    *vllm_only("step", _DEEPSEEK, "extract_reasoning_streaming", record=_capture_later_delta),
    *vllm_only("request", _QWEN, "extract_reasoning", removed="0.32.0", record=_capture_reasoning),
    *vllm_only("step", _QWEN, "extract_reasoning_streaming", removed="0.32.0", record=_capture_later_delta),
    *vllm_only("request", _PARSER, "parse", added="0.32.0"),
    *vllm_only("step", _PARSER, "parse_delta", added="0.32.0", record=_capture_delta),
)
