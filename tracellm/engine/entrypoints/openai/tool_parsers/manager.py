"""`ToolParserManager`: the tool parsers by the names of `--tool-call-parser`.

vLLM: vllm/entrypoints/openai/tool_parsers/abstract_tool_parser.py::ToolParserManager. Left out: users' own parsers.
"""

from __future__ import annotations

from importlib import import_module

from tracellm.engine.entrypoints.openai.tool_parsers.abstract_tool_parser import ToolParser

__all__ = ["ToolParserManager"]

_PARSERS = {
    "hermes": ("hermes_tool_parser", "Hermes2ProToolParser"),
    "llama3_json": ("llama_tool_parser", "Llama3JsonToolParser"),
    "llama4_json": ("llama_tool_parser", "Llama3JsonToolParser"),
    "mistral": ("mistral_tool_parser", "MistralToolParser"),
    "pythonic": ("pythonic_tool_parser", "PythonicToolParser"),
}


class ToolParserManager:
    """Table of the tool parsers; each is imported when it is first asked for."""

    @staticmethod
    def get_tool_parser(name: str) -> type[ToolParser]:
        """Return the class of a parser.

        Raises:
            KeyError: There is no parser of this name.
        """
        if name not in _PARSERS:
            raise KeyError(f"Tool parser '{name}' not found.")
        module, class_name = _PARSERS[name]
        parser: type[ToolParser] = getattr(import_module(f"{__package__}.{module}"), class_name)
        return parser

    @staticmethod
    def list_registered() -> list[str]:
        """Return the names of all parsers, in alphabetical order."""
        return sorted(_PARSERS)
