"""`Hermes2ProToolParser`: calls as Hermes and Qwen models write them, `<tool_call>{"name": ..., "arguments": ...}`.

vLLM: vllm/entrypoints/openai/tool_parsers/hermes_tool_parser.py::Hermes2ProToolParser.
"""

from tracellm.engine.entrypoints.openai.tool_parsers.abstract_tool_parser import ToolParser
from tracellm.engine.entrypoints.openai.tool_parsers.text_reader import MalformedError, Reading

__all__ = ["Hermes2ProToolParser"]

_START, _END = "<tool_call>", "</tool_call>"


class Hermes2ProToolParser(ToolParser):
    """Parser of `<tool_call>` and a JSON object; `</tool_call>` after it may be missing."""

    keeps_special_tokens = True

    def _read(self) -> Reading[None]:
        while (yield from self._text_until((_START,))):
            try:
                yield from self._json_call()
            except MalformedError:
                self._give_up()
                continue
            yield from self._skip_end()

    def _skip_end(self) -> Reading[None]:
        """Skip the end mark, or at the end of the text a part of it."""
        reader = self.reader
        yield from reader.skip_space()
        for length in range(1, len(_END) + 1):
            following = yield from reader.lookahead(length)
            if not _END.startswith(following):
                return
            if following == _END or (reader.ended and len(following) < length):
                reader.position += len(following)
                return
