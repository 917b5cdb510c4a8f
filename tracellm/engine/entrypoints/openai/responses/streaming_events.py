"""`StreamingEventProcessor`: from the deltas of a chat message to the events of a Responses stream.

`OpenAIServingResponses.responses_stream_generator` makes one for each stream. An item is open while deltas of its kind
arrive; it is added, grows, and is done before the next one is added. Each event has the next sequence number:

    response.created, response.in_progress
    for reasoning and a message: response.output_item.added, response.content_part.added,
        response.reasoning_text.delta or response.output_text.delta, ..., the same with .done,
        response.content_part.done, response.output_item.done
    for a call: response.output_item.added, response.function_call_arguments.delta, ..., the same with .done,
        response.output_item.done
    response.completed

vLLM: vllm/entrypoints/openai/responses/streaming_events.py of version 0.32. In 0.11.1 the indexes and ids of a stream
do not match its items, so OpenAI's client cannot follow it, and calls are text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionLogProbsContent,
    DeltaMessage,
    OpenAIBaseModel,
)
from tracellm.engine.entrypoints.openai.responses.protocol import (
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningText,
    ResponseStatus,
)
from tracellm.engine.entrypoints.openai.tool_protocol import DeltaToolCall

__all__ = ["StreamEvent", "StreamingEventProcessor"]

Logprobs = list[ChatCompletionLogProbsContent]


class StreamEvent(OpenAIBaseModel):
    """Event of a stream, with further fields by its type."""

    type: str
    sequence_number: int

    def to_sse(self) -> str:
        """Return the server-sent event."""
        return f"event: {self.type}\ndata: {self.model_dump_json()}\n\n"


class StreamingEventProcessor:
    """State of one stream: its open item and those that are done."""

    def __init__(self) -> None:
        self.output_items: list[ResponseOutputItem] = []
        """Items that are done."""
        self._num_events = 0
        self._item: ResponseOutputItem | None = None
        self._text: list[str] = []  # of the open item
        self._call_index: int | None = None
        self._logprobs: Logprobs = []
        self._waiting_logprobs: Logprobs = []  # of tokens whose text has not come

    def event(self, event_type: str, **fields: Any) -> StreamEvent:
        """Return the next event of the stream."""
        self._num_events += 1
        return StreamEvent(type=event_type, sequence_number=self._num_events - 1, **fields)

    def process(self, delta: DeltaMessage | None, logprobs: Logprobs) -> Iterator[StreamEvent]:
        """Yield the events for a delta of the message, and for the log probabilities of its tokens."""
        self._waiting_logprobs += logprobs
        if delta is None:
            return
        if delta.reasoning:
            self._waiting_logprobs = []
            if not isinstance(self._item, ResponseReasoningItem):
                yield from self._open(ResponseReasoningItem(status="in_progress"), ResponseReasoningText(text=""))
            yield self._delta("reasoning_text", delta.reasoning)
        calls = list(delta.tool_calls)
        if calls and calls[0].id is None:  # the rest of the open call, before any content
            yield from self._process_call(calls.pop(0))
        if delta.content:
            if not isinstance(self._item, ResponseOutputMessage):
                part = ResponseOutputText(text="", logprobs=[])
                yield from self._open(ResponseOutputMessage(content=[], status="in_progress"), part)
            waiting, self._waiting_logprobs = self._waiting_logprobs, []
            self._logprobs += waiting
            shown = [_without_bytes(token) for token in waiting]
            yield self._delta("output_text", delta.content, logprobs=shown)
        for call in calls:
            yield from self._process_call(call)

    def close(self, status: ResponseStatus = "completed") -> Iterator[StreamEvent]:
        """Yield the events that end the open item, if there is one; `status` is the item's."""
        item, text = self._item, "".join(self._text)
        if item is None:
            return
        self._item, self._text = None, []
        place = {"item_id": item.id, "output_index": len(self.output_items)}
        done: ResponseOutputItem
        if isinstance(item, ResponseFunctionToolCall):
            done = item.model_copy(update={"arguments": text, "status": status})
            name = "response.function_call_arguments.done"
            yield self.event(name, **place, arguments=text, name=item.name)
        else:
            place["content_index"] = 0
            part: ResponseReasoningText | ResponseOutputText
            if isinstance(item, ResponseReasoningItem):
                part = ResponseReasoningText(text=text)
                yield self.event("response.reasoning_text.done", **place, text=text)
            else:
                logprobs = self._logprobs + self._waiting_logprobs  # the last token may have no text
                self._logprobs, self._waiting_logprobs = [], []
                part = ResponseOutputText(text=text, logprobs=logprobs or None)
                yield self.event("response.output_text.done", **place, text=text, logprobs=[])
            yield self.event("response.content_part.done", **place, part=part)
            done = item.model_copy(update={"content": [part], "status": status})
        yield self.event("response.output_item.done", output_index=place["output_index"], item=done)
        self.output_items.append(done)

    def _open(
        self, item: ResponseOutputItem, part: ResponseOutputText | ResponseReasoningText | None = None
    ) -> Iterator[StreamEvent]:
        """Yield the events that end the open item and add the next one, and its first part."""
        yield from self.close()
        self._item = item
        output_index = len(self.output_items)
        yield self.event("response.output_item.added", output_index=output_index, item=item)
        if part is not None:
            place = {"item_id": item.id, "output_index": output_index, "content_index": 0}
            yield self.event("response.content_part.added", **place, part=part)

    def _delta(self, kind: str, text: str, **fields: Any) -> StreamEvent:
        assert self._item is not None
        self._text.append(text)
        place = {"item_id": self._item.id, "output_index": len(self.output_items)}
        if not isinstance(self._item, ResponseFunctionToolCall):
            place["content_index"] = 0
        return self.event(f"response.{kind}.delta", **place, delta=text, **fields)

    def _process_call(self, call: DeltaToolCall) -> Iterator[StreamEvent]:
        self._waiting_logprobs = []
        assert call.function is not None
        if not isinstance(self._item, ResponseFunctionToolCall) or call.index != self._call_index:
            assert call.id is not None
            self._call_index = call.index
            name = call.function.name or ""
            yield from self._open(
                ResponseFunctionToolCall(arguments="", call_id=call.id, name=name, status="in_progress")
            )
        if call.function.arguments:
            yield self._delta("function_call_arguments", call.function.arguments)


def _without_bytes(token: ChatCompletionLogProbsContent) -> dict[str, Any]:
    """Return the log probabilities of a token as in the delta of a text."""
    return token.model_dump(exclude={"bytes": True, "top_logprobs": {"__all__": {"bytes"}}})
