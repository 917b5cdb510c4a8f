"""`OpenAIServingTokenization`: `/tokenize` and `/detokenize`, which use the tokenizer and not the model.

vLLM: vllm/entrypoints/openai/serving_tokenization.py::OpenAIServingTokenization. Left out: `/tokenizer_info`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi import Request

from tracellm.engine.config.errors import MalformedRequestError
from tracellm.engine.entrypoints.openai.protocol import ErrorResponse
from tracellm.engine.entrypoints.openai.serving_engine import OpenAIServing
from tracellm.engine.entrypoints.openai.tokenize.protocol import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeChatRequest,
    TokenizeRequest,
    TokenizeResponse,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OpenAIServingTokenization"]


class OpenAIServingTokenization(OpenAIServing):
    """Serving class of `/tokenize` and `/detokenize`."""

    async def create_tokenize(
        self, request: TokenizeRequest, raw_request: Request | None = None
    ) -> TokenizeResponse | ErrorResponse:
        """Tokenize a text or a conversation, also one that is too long for the model."""
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        try:
            tokenizer = await self.engine_client.get_tokenizer()
            if isinstance(request, TokenizeChatRequest):
                _, engine_prompt = await self._preprocess_chat(request, tokenizer, bounded=False)
            else:
                engine_prompt = await self.models.async_tokenizer.tokenize(
                    request.prompt, add_special_tokens=request.add_special_tokens, bounded=False
                )
        except ValueError as error:
            return self._error_response(error)
        token_ids = engine_prompt["prompt_token_ids"]
        texts = await asyncio.to_thread(_texts, tokenizer, token_ids) if request.return_token_strs else None
        return TokenizeResponse(
            tokens=token_ids,
            token_strs=texts,
            count=len(token_ids),
            max_model_len=self.max_model_len,
        )

    async def create_detokenize(
        self, request: DetokenizeRequest, raw_request: Request | None = None
    ) -> DetokenizeResponse | ErrorResponse:
        """Return the text of token ids. Ids that are not in the vocabulary have none."""
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        try:
            tokenizer = await self.engine_client.get_tokenizer()
            return DetokenizeResponse(prompt=tokenizer.decode(request.tokens))
        except OverflowError:
            return self._error_response(
                MalformedRequestError("out of range integral type conversion attempted: `tokens` are 0 to 2**32 - 1.")
            )
        except ValueError as error:
            return self._error_response(error)


def _texts(tokenizer: PreTrainedTokenizerFast, token_ids: Sequence[int]) -> list[str]:
    """Return the tokens as in the vocabulary; `convert_ids_to_tokens` would load transformers for the bundled model."""
    backend = tokenizer.backend_tokenizer
    return [backend.id_to_token(token_id) for token_id in token_ids]
