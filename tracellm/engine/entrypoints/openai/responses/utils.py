"""The conversation of a Responses request: from items to the messages of a chat request.

`OpenAIServingResponses` calls `construct_input_messages` once per request. Items of the assistant that follow one
another, such as reasoning and the calls after it, become one message.

vLLM: vllm/entrypoints/responses_utils.py; items of the assistant as in version 0.32,
vllm/entrypoints/openai/responses/utils.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracellm.engine.config.errors import InvalidRequestError, MalformedRequestError, shorten
from tracellm.engine.entrypoints.openai.responses.protocol import ResponseOutputItem

__all__ = ["construct_input_messages", "construct_output_messages"]

_TEXT_PARTS = ("input_text", "output_text", "text")

Message = dict[str, Any]


def construct_input_messages(request_input: str | Sequence[dict[str, Any]]) -> list[Message]:
    """Return the messages of a request's input: those of a user's text, or of a list of items.

    Items are messages with text or a list of `input_text`, `output_text`, `input_image` and `input_audio` parts,
    `function_call`, `function_call_output` and `reasoning`. Calls become an assistant's `tool_calls`, their outputs
    messages of the role `tool`.

    Raises:
        InvalidRequestError: Names the invalid item.
    """
    if isinstance(request_input, str):
        return [{"role": "user", "content": request_input}]
    messages: list[Message] = []
    for index, item in enumerate(request_input):
        _add(messages, _message(f"input[{index}]", item))
    return messages


def construct_output_messages(output: Sequence[ResponseOutputItem]) -> list[Message]:
    """Return the messages of a response's output, for the next request. Reasoning is left out, as in vLLM.

    vLLM leaves out the calls, too; the prompt then has an output without its call.
    """
    unused: Any = {"content": {"__all__": {"logprobs"}}}
    items = [item.model_dump(exclude_none=True, exclude=unused) for item in output if item.type != "reasoning"]
    return construct_input_messages(items)


def _add(messages: list[Message], new: Message) -> None:
    """Append a message, or merge it into the assistant's last one: its calls, or a part that is missing there."""
    last = messages[-1] if messages else {}
    if last.get("role") == new["role"] == "assistant":
        if "tool_calls" in new:
            last["tool_calls"] = [*last.get("tool_calls", ()), *new["tool_calls"]]
            return
        (name,) = new.keys() - {"role"}
        if name not in last:
            last[name] = new[name]
            return
    messages.append(new)


def _message(label: str, item: dict[str, Any]) -> Message:
    match kind := item.get("type", "message"):
        case "message" if isinstance(item.get("role"), str):
            return {"role": item["role"], "content": _content(f"{label}.content", item.get("content"))}
        case "function_call":
            function = {"name": _text(label, item, "name"), "arguments": _text(label, item, "arguments")}
            call = {"id": _text(label, item, "call_id"), "type": "function", "function": function}
            return {"role": "assistant", "tool_calls": [call]}
        case "function_call_output":
            content = _content(f"{label}.output", item.get("output"))
            return {"role": "tool", "content": content, "tool_call_id": _text(label, item, "call_id")}
        case "reasoning":
            return {"role": "assistant", "reasoning": _reasoning(label, item)}
        case "message":
            raise MalformedRequestError(f"{label}: Field required: `role` is missing.")
    raise InvalidRequestError(f"Unsupported input item type: {str(kind)[:60]} ({label}).")


def _content(label: str, content: Any) -> str | list[Message]:
    """Return a content with its parts as in a chat request."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MalformedRequestError(f"{label} must be text or a list of parts, got {shorten(content)}.")
    return [_part(f"{label}[{index}]", part) for index, part in enumerate(content)]


def _part(label: str, part: Any) -> Message:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": _text(label, part, "text")}
    if kind == "refusal":
        return {"type": "text", "text": _text(label, part, "refusal")}
    if kind == "input_image":
        if part.get("image_url") is None:
            raise InvalidRequestError(f"{label} needs an `image_url`: the server has no files.")
        return {"type": "image_url", "image_url": {"url": _text(label, part, "image_url")}}
    if kind == "input_audio":
        return {"type": kind, kind: part.get(kind)}
    raise MalformedRequestError(
        f"{label}: a part must have the type input_text, output_text, input_image or input_audio, got {shorten(part)}."
    )


def _reasoning(label: str, item: dict[str, Any]) -> str:
    """Return the text of a reasoning item, or its summary."""
    if item.get("encrypted_content"):
        raise InvalidRequestError(f"Encrypted content is not supported ({label}).")
    parts = item.get("content") or item.get("summary") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise MalformedRequestError(f"{label} must have a list of parts as `content`.")
    return "\n".join(_text(label, part, "text") for part in parts)


def _text(label: str, item: dict[str, Any], name: str) -> str:
    """Return a field that must be text."""
    value = item.get(name)
    if not isinstance(value, str):
        raise MalformedRequestError(f"{label}: `{name}` must be text, got {shorten(value)}.")
    return value
