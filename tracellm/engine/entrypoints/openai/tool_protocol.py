"""Models of tools in requests, and of tool calls in responses.

vLLM: vllm/entrypoints/openai/protocol.py, where they are beside all others.
"""

import uuid
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ChatCompletionToolsParam",
    "DeltaFunctionCall",
    "DeltaToolCall",
    "ExtractedToolCallInformation",
    "FunctionCall",
    "FunctionDefinition",
    "ToolCall",
    "make_tool_call_id",
]


def make_tool_call_id() -> str:
    """Return a random id of a tool call. vLLM: vllm/entrypoints/chat_utils.py::make_tool_call_id."""
    return f"chatcmpl-tool-{uuid.uuid4().hex}"


class _Model(BaseModel):
    """Base class; unknown fields are ignored."""

    model_config = ConfigDict(extra="allow")


class FunctionDefinition(_Model):
    """Function offered to the model."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatCompletionToolsParam(_Model):
    """Tool offered to the model through the chat template."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class FunctionCall(_Model):
    """Call of a function by the model."""

    name: str
    arguments: str
    """JSON, as the model wrote it: it may be invalid, or not of the function's schema."""


class ToolCall(_Model):
    """Tool call in a generated message."""

    id: str = Field(default_factory=make_tool_call_id)
    type: Literal["function"] = "function"
    function: FunctionCall


class DeltaFunctionCall(_Model):
    """New part of a `FunctionCall`."""

    name: str | None = None
    arguments: str | None = None


class DeltaToolCall(_Model):
    """New part of a tool call; the first one has id, type and name."""

    id: str | None = None
    type: Literal["function"] | None = None
    index: int
    function: DeltaFunctionCall | None = None


class ExtractedToolCallInformation(_Model):
    """Tool calls in a text, and the content besides."""

    tools_called: bool
    tool_calls: list[ToolCall]
    content: str | None = None
