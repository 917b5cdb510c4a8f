"""Request and response models of `/tokenize` and `/detokenize`.

vLLM: vllm/entrypoints/openai/protocol.py has them with all others.
"""

from typing import Any, Self

from pydantic import model_validator

from tracellm.engine.entrypoints.openai.protocol import Items, OpenAIBaseModel
from tracellm.engine.entrypoints.openai.tool_protocol import ChatCompletionToolsParam

__all__ = [
    "DetokenizeRequest",
    "DetokenizeResponse",
    "TokenizeChatRequest",
    "TokenizeCompletionRequest",
    "TokenizeRequest",
    "TokenizeResponse",
]


class TokenizeCompletionRequest(OpenAIBaseModel):
    """Body of `/tokenize` for a text, tokenized as by `/v1/completions`."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatRequest(OpenAIBaseModel):
    """Body of `/tokenize` for a conversation, tokenized as by `/v1/chat/completions`."""

    model: str | None = None
    messages: Items[dict[str, Any]]
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Items[ChatCompletionToolsParam] | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        return self


TokenizeRequest = TokenizeCompletionRequest | TokenizeChatRequest


class TokenizeResponse(OpenAIBaseModel):
    """Response of `/tokenize`."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    """Tokens as strings of the vocabulary."""


class DetokenizeRequest(OpenAIBaseModel):
    """Body of `/detokenize`."""

    model: str | None = None
    tokens: Items[int]


class DetokenizeResponse(OpenAIBaseModel):
    """Response of `/detokenize`."""

    prompt: str
