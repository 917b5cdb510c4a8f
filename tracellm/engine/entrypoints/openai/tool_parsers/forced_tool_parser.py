"""Parsers for `tool_choice` required and named, whose texts a grammar forms: `RequiredToolParser`, `NamedToolParser`.

vLLM: `OpenAIServing._parse_tool_calls_from_content` and `OpenAIServingChat.extract_tool_call_required_streaming`. There
the grammar depends on `--tool-call-parser`, and a call that `max_tokens` cuts off is an error; here neither.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from tracellm.engine.entrypoints.openai.protocol import ChatCompletionRequest
from tracellm.engine.entrypoints.openai.tool_parsers.abstract_tool_parser import ToolParser
from tracellm.engine.entrypoints.openai.tool_parsers.text_reader import MalformedError, Reading
from tracellm.engine.entrypoints.openai.tool_parsers.utils import get_json_schema_from_tools, parameters_of
from tracellm.engine.entrypoints.openai.tool_protocol import ChatCompletionToolsParam

__all__ = ["NamedToolParser", "RequiredToolParser"]


class _ForcedToolParser(ToolParser):
    """Parser of a text that follows the schema of the tools."""

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON schema of the text."""

    def adjust_request(self, request: ChatCompletionRequest) -> None:
        """Replace all constraints of the request by the schema."""
        request.constrain_to(self.schema)


class RequiredToolParser(_ForcedToolParser):
    """Parser of a list of calls, `[{"name": ..., "parameters": ...}, ...]`."""

    argument_keys = ("parameters",)

    def __init__(self, tools: Sequence[ChatCompletionToolsParam], *, single: bool = False) -> None:
        """Parse calls of these tools; a `single` one under `parallel_tool_calls` false."""
        super().__init__(None)
        self.tools = tools
        self.single = single

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the list.

        Raises:
            InvalidRequestError: The tools contradict each other.
        """
        schema = get_json_schema_from_tools(self.tools)
        return schema | {"maxItems": 1} if self.single else schema

    def _read(self) -> Reading[None]:
        self.reader.mark = 0
        try:
            yield from self._json_calls()
        except MalformedError:  # the text is cut off
            if not self._names:
                self._give_up()
                yield from self._text_until(())


class NamedToolParser(_ForcedToolParser):
    """Parser of the arguments of a chosen function; they are the whole text, and stay as they are."""

    def __init__(self, name: str, tools: Sequence[ChatCompletionToolsParam]) -> None:
        super().__init__(None)
        self.tools = tools
        self.name = name

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return next(parameters_of(tool) for tool in self.tools if tool.function.name == self.name)

    def _read(self) -> Reading[None]:
        reader = self.reader
        if not (yield from reader.lookahead(1)):
            return
        self._begin_call(self.name)
        while True:
            self._add_arguments(reader.take(len(reader.text)))
            if reader.ended:
                break
            yield
        self._end_call()
