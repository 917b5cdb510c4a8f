"""`Llama3JsonToolParser`: calls as Llama 3 and 4 write them, JSON objects with `;` between several.

vLLM: vllm/entrypoints/openai/tool_parsers/llama_tool_parser.py::Llama3JsonToolParser.
"""

from tracellm.engine.entrypoints.openai.tool_parsers.abstract_tool_parser import ToolParser
from tracellm.engine.entrypoints.openai.tool_parsers.text_reader import MalformedError, Reading

__all__ = ["Llama3JsonToolParser"]

_TAG = "<|python_tag|>"


class Llama3JsonToolParser(ToolParser):
    """Parser of `{"name": ..., "parameters": ...}` anywhere in the text, maybe after `<|python_tag|>`."""

    argument_keys = ("parameters", "arguments")

    def _read(self) -> Reading[None]:
        reader = self.reader
        while found := (yield from self._text_until((_TAG, "{"))):
            if found == "{":
                reader.position -= 1
            try:
                yield from self._json_call()
            except MalformedError:
                self._give_up()
                continue
            if (yield from reader.skip_space()) == ";":
                reader.position += 1
