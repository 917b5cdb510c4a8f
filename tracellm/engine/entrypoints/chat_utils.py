"""From the messages of a conversation to a prompt: the tokenizer's chat template is filled in.

vLLM: vllm/entrypoints/chat_utils.py. Left out: images and other media, tools, the templates that vLLM brings along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracellm.engine.errors import InvalidRequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["Message", "apply_hf_chat_template", "parse_chat_messages", "split_conversations"]

Message = Mapping[str, Any]
"""`{"role": "user", "content": "..."}`; the content may also be a list of `{"type": "text", "text": "..."}`."""


def split_conversations(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[list[Message]]:
    """One conversation or several, as several.

    Raises:
        InvalidRequestError: neither of these.
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


def parse_chat_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Check a conversation; contents in parts become one text.

    Raises:
        InvalidRequestError: names the message that is not right.
    """
    if not messages:
        raise InvalidRequestError("The conversation is empty: it needs at least one message.")
    return [_parse_message(index, message) for index, message in enumerate(messages)]


def _parse_message(index: int, message: Message) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{where} must have `role` and `content`, got {type(message).__name__}.")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise InvalidRequestError(f"{where} needs a `role`, such as system, user or assistant; got {role!r}.")
    if isinstance(content, (list, tuple)):
        parts = []
        for part in content:
            if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise InvalidRequestError(f"{where}: only text parts are supported, got {str(part)[:60]}.")
            parts.append(part["text"])
        content = "\n".join(parts)
    if not isinstance(content, str):
        raise InvalidRequestError(f"{where} needs a `content` that is text, got {type(content).__name__}.")
    return {**message, "role": role, "content": content}


def apply_hf_chat_template(
    tokenizer: PreTrainedTokenizerFast,
    conversation: list[dict[str, Any]],
    chat_template: str | None,
    **template_arguments: Any,
) -> str:
    """Fill in the template, `chat_template` or the tokenizer's own.

    Raises:
        InvalidRequestError: there is no template, or it refuses the conversation.
    """
    if chat_template is not None and not isinstance(chat_template, str):
        raise InvalidRequestError(f"`chat_template` must be a Jinja template as a string, got {chat_template!r}.")
    if chat_template is None and not tokenizer.chat_template:
        raise InvalidRequestError(
            f"The tokenizer of `{tokenizer.name_or_path}` has no chat template: this model may not be made for chat. "
            "Give one as chat(..., chat_template=...), or use generate with a plain prompt."
        )
    try:
        return tokenizer.apply_chat_template(
            conversation, chat_template=chat_template, tokenize=False, **template_arguments
        )
    except Exception as error:  # a template is a program: it can fail in any way
        raise InvalidRequestError(f"The chat template does not take this conversation: {error}") from None
