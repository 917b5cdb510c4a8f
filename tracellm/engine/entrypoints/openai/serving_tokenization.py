"""`OpenAIServingTokenization`: texts and conversations to tokens as the model would get them, and tokens to text.

vLLM: vllm/entrypoints/openai/serving_tokenization.py::OpenAIServingTokenization. Left out: `/tokenizer_info`.
"""

from __future__ import annotations

from fastapi import Request

from tracellm.engine.entrypoints.openai.protocol import (
    DetokenizeRequest,
    DetokenizeResponse,
    ErrorResponse,
    TokenizeChatRequest,
    TokenizeRequest,
    TokenizeResponse,
)
from tracellm.engine.entrypoints.openai.serving_engine import OpenAIServing

__all__ = ["OpenAIServingTokenization"]


class OpenAIServingTokenization(OpenAIServing):
    """Serves `/tokenize` and `/detokenize`."""

    async def create_tokenize(
        self, request: TokenizeRequest, raw_request: Request | None = None
    ) -> TokenizeResponse | ErrorResponse:
        """The tokens of a text or a conversation, however many."""
        if (refused := await self._check_model(request.model)) is not None:
            return refused
        try:
            tokenizer = await self.engine_client.get_tokenizer()
            if isinstance(request, TokenizeChatRequest):
                self._validate_chat_template(request.chat_template, request.chat_template_kwargs)
                _, engine_prompt = await self._preprocess_chat(
                    tokenizer,
                    request.messages,
                    request.chat_template or self.chat_template,
                    self.chat_template_content_format,
                    add_generation_prompt=request.add_generation_prompt,
                    continue_final_message=request.continue_final_message,
                    tool_dicts=None if request.tools is None else [tool.model_dump() for tool in request.tools],
                    chat_template_kwargs=request.chat_template_kwargs,
                    add_special_tokens=request.add_special_tokens,
                    bounded=False,
                )
            else:
                engine_prompt = await self.models.async_tokenizer.tokenize(
                    request.prompt, add_special_tokens=request.add_special_tokens, bounded=False
                )
        except ValueError as error:
            return self._refusal(error)
        token_ids = engine_prompt["prompt_token_ids"]
        return TokenizeResponse(
            tokens=token_ids,
            token_strs=tokenizer.convert_ids_to_tokens(token_ids) if request.return_token_strs else None,
            count=len(token_ids),
            max_model_len=self.max_model_len,
        )

    async def create_detokenize(
        self, request: DetokenizeRequest, raw_request: Request | None = None
    ) -> DetokenizeResponse | ErrorResponse:
        """The text of some tokens."""
        if (refused := await self._check_model(request.model)) is not None:
            return refused
        try:
            tokenizer = await self.engine_client.get_tokenizer()
            self._check_token_ids(request.tokens)
        except ValueError as error:
            return self._refusal(error)
        return DetokenizeResponse(prompt=tokenizer.decode(request.tokens))
