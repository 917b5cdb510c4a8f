"""`/tokenize` and `/detokenize`: what the model's tokenizer makes of a text or a conversation, and back.

vLLM: vllm/entrypoints/openai/protocol.py::TokenizeCompletionRequest and those after it.
"""

from typing import Any, Self

from pydantic import model_validator

from tracellm.engine.entrypoints.openai.protocol.base import OpenAIBaseModel
from tracellm.engine.entrypoints.openai.protocol.chat import ChatCompletionToolsParam

__all__ = [
    "DetokenizeRequest",
    "DetokenizeResponse",
    "TokenizeChatRequest",
    "TokenizeCompletionRequest",
    "TokenizeRequest",
    "TokenizeResponse",
]


class TokenizeCompletionRequest(OpenAIBaseModel):
    """A text, as `/v1/completions` would have it."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatRequest(OpenAIBaseModel):
    """A conversation, as `/v1/chat/completions` would have it."""

    model: str | None = None
    messages: list[dict[str, Any]]
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[ChatCompletionToolsParam] | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("`continue_final_message` needs `add_generation_prompt=false`.")
        return self


TokenizeRequest = TokenizeCompletionRequest | TokenizeChatRequest


class TokenizeResponse(OpenAIBaseModel):
    """The tokens."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    """The tokens as the vocabulary has them."""


class DetokenizeRequest(OpenAIBaseModel):
    """Token ids."""

    model: str | None = None
    tokens: list[int]


class DetokenizeResponse(OpenAIBaseModel):
    """Their text."""

    prompt: str
