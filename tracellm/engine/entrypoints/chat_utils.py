"""Chat: from the messages of a conversation to a prompt, by filling in the tokenizer's chat template.

vLLM: vllm/entrypoints/chat_utils.py. Left out: the templates that come with vLLM.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import InvalidRequestError, MalformedRequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.entrypoints.chat_media import MultiModalItemTracker
    from tracellm.engine.multimodal.processing import BaseMultiModalProcessor

__all__ = [
    "CONTENT_FORMATS",
    "Message",
    "apply_hf_chat_template",
    "parse_chat_messages",
    "split_conversations",
    "takes_parts",
    "track_items",
]

Message = Mapping[str, Any]
"""`{"role": "user", "content": "..."}`; the content may also be a list of parts: `{"type": "text", "text": "..."}`,
images, sounds.
"""

CONTENT_FORMATS = ("auto", "string", "openai")

_TEXT_PARTS = {"text": "text", "input_text": "text", "refusal": "refusal", "thinking": "thinking"}
"""Types of parts that are text, and their field with the text."""


def split_conversations(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[list[Message]]:
    """Return a list of conversations for one conversation or several.

    Raises:
        InvalidRequestError: `messages` is neither.
    """
    if isinstance(messages, (list, tuple)) and messages:
        if all(isinstance(item, Mapping) for item in messages):
            return [list(messages)]
        if all(isinstance(item, (list, tuple)) for item in messages):
            return [list(item) for item in messages]
    raise InvalidRequestError(
        'A conversation is a list of messages such as {"role": "user", "content": "Hello"}; '
        f"chat takes one conversation or a list of them, got {type(messages).__name__} {str(messages)[:40]}."
    )


def track_items(
    mm_processor: BaseMultiModalProcessor | None, content_format: str, chat_template: str | None
) -> tuple[MultiModalItemTracker | None, str]:
    """Return the tracker for a conversation's images and sounds, None for a text model, and the content format.

    `auto` is `openai` for a template that goes through the parts of a content itself, else `string`.
    """
    if content_format == "auto" and isinstance(chat_template, str):
        content_format = "openai" if takes_parts(chat_template) else "string"
    if mm_processor is None:
        return None, content_format
    from tracellm.engine.entrypoints.chat_media import MultiModalItemTracker

    return MultiModalItemTracker(mm_processor), content_format


@lru_cache(maxsize=32)
def takes_parts(chat_template: str) -> bool:
    """Return whether a chat template goes through the parts of a message's content itself, so that it places images.

    Such a template loops over `messages`, and over `message["content"]` there, or a variable that was set to it.

    vLLM: vllm/entrypoints/chat_utils.py::_detect_content_format. There it must loop over `message["content"]` itself.
    """
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class Generation(Extension):
        """`{% generation %}` of transformers, which marks what an assistant writes."""

        tags = {"generation"}  # noqa: RUF012  (as jinja2 declares it)

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    try:
        tree = jinja2.Environment(extensions=["jinja2.ext.loopcontrols", Generation]).parse(chat_template)
    except jinja2.TemplateError:
        return False  # the template's own error comes when it is filled in
    assigns: list[Any] = [one for one in tree.find_all(nodes.Assign) if isinstance(one.target, nodes.Name)]
    loops: list[Any] = [one for one in tree.find_all(nodes.For) if isinstance(one.target, nodes.Name)]
    conversations, contents = {"messages"}, set[str]()
    for assign in assigns:
        if _reads(assign.node, conversations):
            conversations.add(assign.target.name)
    messages = {loop.target.name for loop in loops if _reads(loop.iter, conversations)}
    for assign in assigns:
        if _reads(assign.node, messages, "content") or _reads(assign.node, contents):
            contents.add(assign.target.name)
    return any(_reads(loop.iter, messages, "content") or _reads(loop.iter, contents) for loop in loops)


def _reads(node: Any, names: set[str], key: str | None = None) -> bool:
    """Return whether an expression is one of these variables, or its item `key`, or some elements of that."""
    from jinja2 import nodes

    while isinstance(node, (nodes.Filter, nodes.Test)) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    if key is not None:
        if isinstance(node, nodes.Getitem):
            found = node.arg.value if isinstance(node.arg, nodes.Const) else None
        else:
            found = node.attr if isinstance(node, nodes.Getattr) else None
        if found != key:
            return False
        node = node.node
    return isinstance(node, nodes.Name) and node.name in names


def parse_chat_messages(
    messages: Sequence[Message], content_format: str = "auto", items: MultiModalItemTracker | None = None
) -> list[dict[str, Any]]:
    """Validate a conversation and convert all contents to one text, or under `openai` to lists of parts.

    A message keeps `role`, `content` and `name`; an assistant's, the reasoning and `tool_calls` (vLLM also keeps an
    empty list of them); a tool's, `tool_call_id`. A missing content, or null as an assistant's, becomes an
    empty one. The arguments of `tool_calls` become dicts. Images and sounds go to `items`. In their place is
    `{"type": "image"}` under `openai`; otherwise their placeholders come before the message's text, but for those that
    the text has itself.

    Raises:
        InvalidRequestError: names the invalid message.
    """
    if content_format not in CONTENT_FORMATS:
        raise InvalidRequestError(
            f"`chat_template_content_format` must be one of {', '.join(CONTENT_FORMATS)}, got {content_format!r}."
        )
    if not messages:
        raise InvalidRequestError("The conversation is empty: it needs at least one message.")
    return [
        _parse_message(f"messages[{index}]", message, content_format, items) for index, message in enumerate(messages)
    ]


def _parse_message(
    label: str, message: Message, content_format: str, items: MultiModalItemTracker | None
) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise MalformedRequestError(f"{label} must have `role` and `content`, got {type(message).__name__}.")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise MalformedRequestError(f"{label} needs a `role`, such as system, user or assistant; got {role!r}.")
    parsed: dict[str, Any] = {"role": role}
    if isinstance(message.get("name"), str):
        parsed["name"] = message["name"]
    if role == "tool" and "tool_call_id" in message:
        parsed["tool_call_id"] = message["tool_call_id"]
    if role == "assistant":
        if tool_calls := message.get("tool_calls"):
            parsed["tool_calls"] = _parse_tool_calls(label, tool_calls)
        if reasoning := message.get("reasoning") or message.get("reasoning_content"):  # templates have either name
            parsed |= {"reasoning": reasoning, "reasoning_content": reasoning}
    content = message.get("content", ())
    parts = _parse_content(label, () if content is None and role == "assistant" else content, items)
    if content_format == "openai":
        parsed["content"] = [{key: value for key, value in part.items() if key != "placeholder"} for part in parts]
    else:
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        placeholders = Counter(part["placeholder"] for part in parts if "placeholder" in part)
        parsed["content"] = "\n".join([*_missing_placeholders(label, text, placeholders), text])
    return parsed


def _missing_placeholders(label: str, text: str, placeholders: Counter[str]) -> Iterator[str]:
    """Yield the placeholders of a message's items that its text does not have itself."""
    for placeholder, count in placeholders.items():
        missing = count - text.count(placeholder)
        if missing < 0:
            raise InvalidRequestError(
                f"Found more '{placeholder}' placeholders in input prompt than actual multimodal data items. {label} "
                f"has {count} of these items."
            )
        yield from [placeholder] * missing


def _parse_content(label: str, content: object, items: MultiModalItemTracker | None) -> list[dict[str, str]]:
    """Return the parts of a content, which is one text or a list of parts.

    Each is `{"type": "text", "text": ...}`, or `{"type": modality, "placeholder": ...}`.
    """
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, (list, tuple)):
        raise MalformedRequestError(f"{label} needs a `content` that is text, got {type(content).__name__}.")
    parts: list[dict[str, str]] = []
    for index, part in enumerate(content):
        text = part.get(_TEXT_PARTS.get(str(part.get("type")))) if isinstance(part, Mapping) else None
        if isinstance(text, str):
            parts.append({"type": "text", "text": text})
        elif items is None or not isinstance(part, Mapping):
            raise InvalidRequestError(f"{label}: only text parts are supported, got {str(part)[:60]}.")
        else:
            try:
                modality = items.add(part)
            except InvalidRequestError as error:
                raise InvalidRequestError(f"{label}.content[{index}]: {error}") from None
            parts.append({"type": modality, "placeholder": items.placeholder(modality)})
    return parts


def _parse_tool_calls(label: str, tool_calls: object) -> list[dict[str, Any]]:
    """Return tool calls with their arguments parsed: templates expect objects, and OpenAI's API has JSON strings."""
    parsed = []
    for index, call in enumerate(tool_calls if isinstance(tool_calls, (list, tuple)) else [tool_calls]):
        function = call.get("function") if isinstance(call, Mapping) else None
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "null")
            except (ValueError, RecursionError):
                function = None
        if not isinstance(function, Mapping):
            raise InvalidRequestError(
                f"{label}: tool_calls[{index}] must have a `function` with `name` and `arguments` (JSON), "
                f"got {str(call)[:60]}."
            )
        parsed.append({**call, "function": {**function, "arguments": {} if arguments is None else arguments}})
    return parsed


def apply_hf_chat_template(
    tokenizer: PreTrainedTokenizerFast,
    conversation: list[dict[str, Any]],
    /,
    chat_template: str | None,
    **template_arguments: Any,
) -> str:
    """Fill in `chat_template`, or the tokenizer's own template.

    A template without the role `developer`, OpenAI's newer name, gets these messages as those of the system.

    Raises:
        InvalidRequestError: there is no template, or it rejects the conversation.
    """
    if chat_template is not None and not isinstance(chat_template, str):
        raise InvalidRequestError(f"`chat_template` must be a Jinja template as a string, got {chat_template!r}.")
    if chat_template is None and not tokenizer.chat_template:
        raise InvalidRequestError(
            f"The tokenizer of `{tokenizer.name_or_path}` has no chat template: this model may not be made for chat. "
            "Give one as chat(..., chat_template=...), or use generate with a plain prompt."
        )
    template = chat_template or tokenizer.chat_template
    if isinstance(template, str) and not re.search(r"""(["'])developer\1""", template):  # as in vLLM 0.32
        conversation = [
            {**message, "role": "system"} if message["role"] == "developer" else message for message in conversation
        ]
    try:
        return tokenizer.apply_chat_template(
            conversation, chat_template=chat_template, tokenize=False, **template_arguments
        )
    except Exception as error:  # a template is a program and can raise anything
        raise InvalidRequestError(f"The chat template rejects this conversation: {error}") from None
