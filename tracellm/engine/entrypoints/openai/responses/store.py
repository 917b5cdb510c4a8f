"""`ResponseStore`: responses for later requests, in memory, within bounds.

`OpenAIServingResponses` keeps responses here if VLLM_ENABLE_RESPONSES_API_STORE is 1: for `previous_response_id`, for
retrieval, and those in the background for cancelling. The store has at most `MAX_RESPONSES` responses and `MAX_SIZE`
characters in their conversations, outputs and events. For a new one the oldest are removed, except those that are not
done.

vLLM: `response_store`, `msg_store`, `event_store` and `background_tasks` of `OpenAIServingResponses`, which have no
bounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from tracellm.engine.entrypoints.openai.responses.protocol import ResponsesResponse

__all__ = ["ResponseStore", "StoredResponse"]


@dataclass
class StoredResponse:
    """A response, and the conversation before its output."""

    response: ResponsesResponse
    messages: list[dict[str, Any]]
    """The conversation without `instructions`."""
    task: asyncio.Task[None] | None = None
    """Task in the background; None for a response that was not, or is done."""
    events: list[str] | None = None
    """Events of a stream in the background; None if it is no stream."""
    size: int = 0
    """Characters."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_done(self) -> bool:
        """Whether the response is final."""
        return self.response.status not in ("queued", "in_progress")

    def add_event(self, event: str) -> None:
        """Add an event of the stream, and wake its readers."""
        assert self.events is not None
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """Wake the readers of the stream: it has grown, or has ended."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def read_events(self, start: int) -> AsyncGenerator[str, None]:
        """Yield the events from this number on, as they come."""
        assert self.events is not None
        while True:
            changed = self._changed
            while start < len(self.events):
                yield self.events[start]
                start += 1
            if self.is_done:
                return
            await changed.wait()


class ResponseStore:
    """Stored responses by their ids."""

    MAX_RESPONSES = 1000
    MAX_SIZE = 64 << 20

    def __init__(self) -> None:
        self._stored: dict[str, StoredResponse] = {}  # the oldest first
        self._size = 0

    def get(self, response_id: str) -> StoredResponse | None:
        """Return a stored response, or None."""
        return self._stored.get(response_id)

    @property
    def num_unfinished(self) -> int:
        """Number of responses that are not done."""
        return sum(not stored.is_done for stored in self._stored.values())

    def put(self, stored: StoredResponse) -> None:
        """Store a response, or measure a stored one again; drop the oldest ones beyond the bounds."""
        old = self._stored.get(stored.response.id)
        self._size -= 0 if old is None else old.size
        stored.size = _size([stored.messages, stored.response.output, stored.events or ()])
        self._size += stored.size
        self._stored[stored.response.id] = stored
        for response_id, oldest in list(self._stored.items()):
            if len(self._stored) <= self.MAX_RESPONSES and self._size <= self.MAX_SIZE:
                break
            if oldest.is_done and oldest is not stored:
                self._size -= self._stored.pop(response_id).size


def _size(value: Any) -> int:
    """Return the number of characters in all strings of a value, or in the JSON of a model, which may have numbers."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, BaseModel):
        return len(value.model_dump_json())
    if isinstance(value, dict):
        return sum(_size(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_size(part) for part in value)
    return 0
