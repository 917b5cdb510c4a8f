"""`MessageParser`: from the text of one output to a chat message, with its reasoning, content and tool calls.

`OpenAIServingChat` makes one for each output, and passes it the complete text or the pieces of a stream. The reasoning
is split off first; the rest goes to the tool parser. Both do nothing unless the server has a parser or the request
forces a call.

vLLM has this inside both generators of vllm/entrypoints/openai/serving_chat.py::OpenAIServingChat.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.protocol import ChatCompletionRequest, ChatMessage, DeltaMessage
from tracellm.engine.entrypoints.openai.tool_parsers import ToolParser
from tracellm.engine.entrypoints.openai.tool_parsers.forced_tool_parser import NamedToolParser, RequiredToolParser
from tracellm.engine.reasoning import ReasoningParser

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["MessageParser", "ParserChoice"]

_MIN_THREAD_LENGTH = 1 << 14
"""Characters above which a text is parsed in a thread; such a text may take 0.1 s."""


class ParserChoice:
    """Parsers of a server: those of its options, and those of a request's `tool_choice`."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast | None,
        tool_parser: type[ToolParser] | None,
        reasoning_parser: type[ReasoningParser] | None,
        *,
        exclude_tools_when_tool_choice_none: bool = False,
    ) -> None:
        """Choose between these parsers.

        Args:
            tokenizer: Tokenizer of the model, None without one.
            tool_parser: Parser of tool calls, if the server has one.
            reasoning_parser: Parser of reasoning, if the server has one.
            exclude_tools_when_tool_choice_none: Leave the tools out of the prompt if the model must not call them.

        Raises:
            EngineError: A parser needs tokens that the tokenizer does not have.
        """
        self.tokenizer = tokenizer
        self.tool_parser = tool_parser
        self.reasoning_parser = reasoning_parser
        self.exclude_tools_when_tool_choice_none = exclude_tools_when_tool_choice_none
        if tokenizer is not None:
            self._tool_parser_of_model()
            self._reasoning_parser("")

    def adjust_request(self, request: ChatCompletionRequest) -> None:
        """Constrain the output to a forced call, and leave out tools that must not be called.

        Raises:
            InvalidRequestError: See `get_tool_parser`; or the tools contradict each other.
        """
        if (tool_parser := self.get_tool_parser(request)) is not None:
            tool_parser.adjust_request(request)
        if request.tool_choice == "none" and self.exclude_tools_when_tool_choice_none:
            request.tools = None

    def get_tool_parser(self, request: ChatCompletionRequest) -> ToolParser | None:
        """Return a parser for an output of the request, or None if its text has no calls.

        Raises:
            InvalidRequestError: `tool_choice` is auto, and the server has no parser.
        """
        if request.tool_choice == "auto" and self.tool_parser is None:
            raise InvalidRequestError(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set. Start the '
                'server with both, or choose "required", "none" or a named tool.'
            )
        if not request.tools or request.tool_choice == "none":
            return None
        if request.requires_call:
            if request.named_tool is None:
                return RequiredToolParser(request.tools, single=request.has_single_call)
            return NamedToolParser(request.named_tool, request.tools)
        return self._tool_parser_of_model()

    def get_message_parser(self, request: ChatCompletionRequest, prompt: str) -> MessageParser:
        """Return the parser of an output of the request, after this prompt."""
        return MessageParser(request, self._reasoning_parser(prompt), self.get_tool_parser(request))

    def _tool_parser_of_model(self) -> ToolParser | None:
        return None if self.tool_parser is None else self.tool_parser(self.tokenizer)

    def _reasoning_parser(self, prompt: str) -> ReasoningParser | None:
        if self.reasoning_parser is None:
            return None
        assert self.tokenizer is not None
        return self.reasoning_parser(self.tokenizer, prompt)


class MessageParser:
    """Parser of one output, used either for the complete text or for its pieces."""

    def __init__(
        self,
        request: ChatCompletionRequest,
        reasoning_parser: ReasoningParser | None,
        tool_parser: ToolParser | None,
    ) -> None:
        self.request = request
        self.reasoning_parser = reasoning_parser
        self.tool_parser = tool_parser

    def parse(self, text: str, role: str) -> ChatMessage:
        """Return the message of a complete text."""
        parser = self.reasoning_parser
        reasoning, content = (None, text) if parser is None else parser.extract_reasoning(text)
        message = ChatMessage(
            role=role, content=content, reasoning=reasoning if self.request.include_reasoning else None
        )
        if self.tool_parser is not None:
            extracted = self.tool_parser.extract_tool_calls(content or "")
            message.tool_calls = extracted.tool_calls[:1] if self.request.has_single_call else extracted.tool_calls
            if self.request.requires_call:
                message.content = extracted.content or ""
            elif content is not None:
                message.content = extracted.content
        return message

    async def parse_async(self, text: str, role: str) -> ChatMessage:
        """Return the message of a complete text; a long one is parsed in a thread, beside the event loop."""
        if len(text) <= _MIN_THREAD_LENGTH or (self.reasoning_parser is None and self.tool_parser is None):
            return self.parse(text, role)
        return await asyncio.to_thread(self.parse, text, role)

    def parse_delta(self, text: str, *, finished: bool) -> DeltaMessage | None:
        """Return the part of the message that the next piece of text adds; None if that is nothing yet.

        `finished` is for the last piece, after which nothing is held back.
        """
        if self.reasoning_parser is None and self.tool_parser is None:
            return DeltaMessage(content=text)
        reasoning, content = "", text
        if self.reasoning_parser is not None:
            reasoning, content = self.reasoning_parser.extract_reasoning_streaming(text, finished=finished)
        delta = None
        if self.tool_parser is None:
            delta = DeltaMessage(content=content) if content else None
        elif content or finished:
            delta = self.tool_parser.extract_tool_calls_streaming(content, finished=finished)
            if delta is not None and delta.tool_calls and self.request.has_single_call:
                delta.tool_calls = [call for call in delta.tool_calls if call.index == 0]
                delta = delta if delta.tool_calls or delta.content else None
        if reasoning and self.request.include_reasoning:
            delta = DeltaMessage() if delta is None else delta
            delta.reasoning = delta.reasoning_content = reasoning
        return delta

    def finish_reason(self, reason: str) -> str:
        """Return the reason that the message ends, from that of the output.

        It is `tool_calls` after calls that the model chose or had to choose, and `stop` after a named one, as in
        OpenAI's API. An output that was cut off has its own reason, whatever it calls.
        """
        called = self.tool_parser is not None and self.tool_parser.num_completed > 0
        return "tool_calls" if reason == "stop" and called and self.request.named_tool is None else reason
