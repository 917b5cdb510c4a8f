"""Tool parsers: from a model's text to the calls of functions in it, one parser for each way to write them.

vLLM: vllm/entrypoints/openai/tool_parsers/, with the names of its parsers. `forced_tool_parser.py` holds what vLLM has
in `serving_chat.py`: the calls of `tool_choice` required and named, which a grammar forms.
"""

from tracellm.engine.entrypoints.openai.tool_parsers.abstract_tool_parser import ToolParser
from tracellm.engine.entrypoints.openai.tool_parsers.manager import ToolParserManager

__all__ = ["ToolParser", "ToolParserManager"]
