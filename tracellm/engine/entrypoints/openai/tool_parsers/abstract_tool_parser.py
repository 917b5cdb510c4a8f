"""`ToolParser`: base class of the tool parsers, from pieces of text to content and tool calls.

`MessageParser` makes one for each output of a request with tools, and passes it the text after the reasoning. A call
begins once its name and the first of its arguments are there; its first delta has id, type and name, and those after it
pieces of the arguments. Only a complete call is a call. All other text is content, except white space beside calls.

vLLM: vllm/entrypoints/openai/tool_parsers/abstract_tool_parser.py::ToolParser. There `extract_tool_calls_streaming`
takes all text and tokens so far, and the serving class sends what a parser has kept to itself.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracellm.engine.entrypoints.openai.protocol import ChatCompletionRequest, DeltaMessage
from tracellm.engine.entrypoints.openai.tool_parsers.text_reader import MalformedError, Reading, TextReader
from tracellm.engine.entrypoints.openai.tool_protocol import (
    DeltaFunctionCall,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
    make_tool_call_id,
)
from tracellm.engine.reasoning.basic_parsers import overlap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["ToolParser"]


@dataclass
class _NewPart:
    """New part of a call; its first part has the name and the id."""

    name: str | None = None
    id: str | None = None
    arguments: list[str] = field(default_factory=list)

    def delta(self, index: int) -> DeltaToolCall:
        function = DeltaFunctionCall() if self.name is None else DeltaFunctionCall(name=self.name)
        if self.arguments:
            function.arguments = "".join(self.arguments)
        if self.id is None:
            return DeltaToolCall(index=index, function=function)
        return DeltaToolCall(id=self.id, type="function", index=index, function=function)


class ToolParser(ABC):
    """Parser of one output; used either for the complete text or for its pieces."""

    argument_keys: tuple[str, ...] = ("arguments",)
    """Keys of the arguments in a call that is a JSON object."""
    keeps_special_tokens = False
    """True if the calls are marked by tokens that are special in some models, and would be left out of the text."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None) -> None:
        self.model_tokenizer = tokenizer
        self.reader = TextReader()
        self.num_completed = 0
        """Number of complete calls."""
        self._streaming = False
        self._reading = self._read()
        self._content: list[str] = []
        self._space: list[str] | None = []  # white space that begins the content; None after other characters
        self._space_before: list[str] | None = None  # the same, before the last call
        self._names: list[str] = []
        self._calls: dict[int, _NewPart] = {}  # by index

    def adjust_request(self, request: ChatCompletionRequest) -> None:
        """Change a request so that its text has what the parser looks for."""
        if self.keeps_special_tokens:
            request.skip_special_tokens = False

    def extract_tool_calls(self, model_output: str) -> ExtractedToolCallInformation:
        """Return the calls in a complete text, and the content besides."""
        self.reader.feed(model_output, ended=True)
        next(self._reading, None)
        delta = self._take_delta()
        tool_calls = []
        for call in delta.tool_calls if delta is not None else ():
            assert call.id is not None
            assert call.function is not None
            function = FunctionCall(name=call.function.name or "", arguments=call.function.arguments or "")
            tool_calls.append(ToolCall(id=call.id, function=function))
        content = None if delta is None else delta.content
        if content is None and not tool_calls:
            content = ""
        return ExtractedToolCallInformation(tools_called=bool(tool_calls), tool_calls=tool_calls, content=content)

    def extract_tool_calls_streaming(self, delta_text: str, *, finished: bool = False) -> DeltaMessage | None:
        """Return what the next piece of text adds to content and calls; None if that is nothing yet.

        `finished` is for the last piece, which may be empty: text that might have become a call is content then.
        """
        self._streaming = True
        self.reader.feed(delta_text, ended=finished)
        next(self._reading, None)
        return self._take_delta()

    # -- for the parsers ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _read(self) -> Reading[None]:
        """Read the text to its end."""

    def _make_id(self) -> str:
        return make_tool_call_id()

    def _text_until(self, marks: Sequence[str]) -> Reading[str]:
        """Read content up to the next of these texts, and mark its place. Return it, or an empty string at the end."""
        reader = self.reader
        pattern = re.compile("|".join(map(re.escape, marks))) if marks else None
        while True:
            if pattern is not None and (found := pattern.search(reader.text, reader.position)):
                self._add_content(reader.take(found.start()))
                reader.mark = reader.position
                reader.position = found.end()
                return found.group()
            end = len(reader.text)
            if not reader.ended:
                end -= max((overlap(reader.text, mark, reader.position) for mark in marks), default=0)
            self._add_content(reader.take(end))
            if reader.ended:
                return ""
            yield

    def _json_call(self) -> Reading[None]:
        """Read a call that is a JSON object, `{"name": "f", "arguments": {}}`, in any order, maybe with other keys.

        Raises:
            MalformedError: There is no such object.
        """
        reader = self.reader
        name: str | None = None
        arguments: list[str] | None = None  # before the name
        begun = False
        yield from reader.expect("{")
        if (yield from reader.skip_space()) != "}":
            while True:
                key = yield from reader.json_string()
                yield from reader.expect(":")
                if key == "name" and name is None:
                    name = yield from reader.json_string()
                    if arguments is not None:
                        begun = self._begin_call(name)
                        self._add_arguments("".join(arguments))
                elif key in self.argument_keys and not begun and arguments is None:
                    if name is not None:
                        begun = self._begin_call(name)
                        yield from reader.json_value(self._add_arguments)
                    else:
                        arguments = []
                        yield from reader.json_value(arguments.append)
                else:
                    yield from reader.json_value(lambda text: None)
                if (yield from reader.skip_space()) != ",":
                    break
                reader.position += 1
        yield from reader.expect("}")
        if not begun:
            raise MalformedError("no name or no arguments")
        self._end_call()

    def _json_calls(self) -> Reading[None]:
        """Read a list of calls that are JSON objects; it may be empty.

        Raises:
            MalformedError: There is no list, or an item is no call. Those before it stay.
        """
        reader = self.reader
        yield from reader.expect("[")
        if (yield from reader.skip_space()) != "]":
            while True:
                yield from self._json_call()
                if (yield from reader.skip_space()) != ",":
                    break
                reader.mark = reader.position
                reader.position += 1
        yield from reader.expect("]")
        reader.mark = None

    def _begin_call(self, name: str) -> bool:
        """Add a call. Return True.

        Raises:
            MalformedError: The name is empty.
        """
        if not name:
            raise MalformedError("an empty name")
        index = len(self._names)
        self._calls[index] = _NewPart(name, self._make_id())
        self._names.append(name)
        self._space_before, self._space = self._space, []
        if self._streaming:
            self.reader.mark = None  # a call that was sent cannot be taken back
        return True

    def _add_arguments(self, text: str) -> None:
        """Add to the arguments of the last call."""
        if not text:
            return
        self._calls.setdefault(len(self._names) - 1, _NewPart()).arguments.append(text)

    def _end_call(self) -> None:
        """Count the last call as complete."""
        self.num_completed += 1
        self.reader.mark = None

    def _give_up(self) -> None:
        """Turn what was read since the mark into content: it is no call.

        In a stream, a call that began has been sent, and stays as it is.
        """
        if self.reader.mark is None:
            return
        if not self._streaming and len(self._names) > self.num_completed:
            del self._calls[len(self._names) - 1]
            self._names.pop()
            self._space = self._space_before
        text = self.reader.text[self.reader.mark : self.reader.position]
        self.reader.mark = None
        self._add_content(text)

    def _add_content(self, text: str) -> None:
        """Add content. White space between a call and another call, or the end, is left out."""
        if not text:
            return
        if self._space is None:
            self._content.append(text)
        elif text.isspace():
            self._space.append(text)
        else:
            self._content += [*self._space, text]
            self._space = None

    def _take_delta(self) -> DeltaMessage | None:
        if self.reader.ended and self._space and not self._names:
            self._content += self._space
        if not self._content and not self._calls:
            return None
        delta = DeltaMessage()  # fields that are not set are not sent
        if self._content:
            delta.content = "".join(self._content)
        if self._calls:
            delta.tool_calls = [call.delta(index) for index, call in self._calls.items()]
        self._content, self._calls = [], {}
        return delta
