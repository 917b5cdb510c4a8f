"""`OpenAIServingPooling`: `/pooling`, the results of a pooling model; and what all routes of such models share.

vLLM: vllm/entrypoints/openai/serving_pooling.py::OpenAIServingPooling, and the pipeline of `OpenAIServing` for pooling
in serving_engine.py. Left out: plugins, bytes as a response.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.async_utils import EnginePrompt, merge_async_iterators
from tracellm.engine.entrypoints.openai.protocol import ErrorResponse, UsageInfo
from tracellm.engine.entrypoints.openai.serving_engine import OpenAIServing
from tracellm.engine.entrypoints.pooling.protocol import (
    EmbeddingChatRequest,
    EmbeddingCompletionRequest,
    EmbedDType,
    Endianness,
    PoolingRequest,
    PoolingResponse,
    PoolingResponseData,
)
from tracellm.engine.frontend.outputs import PoolingOutput, PoolingRequestOutput
from tracellm.engine.pool.pooling_params import PoolingParams

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["OpenAIServingPooling", "encode_pooling_output"]

_MAX_INPUTS = 2048
"""Maximum number of inputs of one HTTP request, as in OpenAI's API."""


class OpenAIServingPooling(OpenAIServing):
    """Serving class of `/pooling`, and base class of the others."""

    async def create_pooling(
        self, request: PoolingRequest, raw_request: Request | None = None
    ) -> PoolingResponse | ErrorResponse:
        """Return the result of each input.

        Raises:
            EngineDeadError: The engine has died.
        """
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        request_id = f"pool-{self._base_request_id(raw_request, request.request_id)}"
        try:
            if request.dimensions is not None:
                raise InvalidRequestError("dimensions is currently not supported")
            params = request.to_pooling_params()
            params.task = self._task(request.task)
            outputs = await self._encode(request, params, request_id, raw_request)
        except ValueError as error:
            return self._error_response(error)
        data = [
            PoolingResponseData(index=index, data=self._encoded(request, output))
            for index, output in enumerate(outputs)
        ]
        return PoolingResponse(id=request_id, model=self.models.model_name(), data=data, usage=self._usage_of(outputs))

    def _task(self, task: str | None) -> str:
        supported = list(self.engine_client.processor.supported_tasks)
        if task is None:
            if "token_embed" not in supported:
                raise InvalidRequestError(
                    f"pooling_task must be one of {supported}. The default, `token_embed`, needs a server with "
                    "--no-enable-chunked-prefill."
                )
            return "token_embed"
        if task not in supported:
            raise InvalidRequestError(f"Task {task} is not supported, it must be one of {supported}.")
        return task

    # -- shared by all routes -----------------------------------------------------------------------------------------

    async def _encode(
        self,
        request: EmbeddingCompletionRequest | EmbeddingChatRequest,
        params: PoolingParams,
        request_id: str,
        raw_request: Request | None,
    ) -> list[PoolingRequestOutput[PoolingOutput]]:
        """Return the outputs of a request's inputs, in their order.

        Raises:
            InvalidRequestError: An input or a parameter is invalid.
        """
        if isinstance(request, EmbeddingChatRequest):
            max_length = self._max_input_length(request.truncate_prompt_tokens)
            tokenizer = await self.engine_client.get_tokenizer()
            _, engine_prompt = await self._preprocess_chat(request, tokenizer, max_length=max_length)
            engine_prompts = [engine_prompt]
        else:
            engine_prompts = await self._tokenize(
                request.prompts, request.truncate_prompt_tokens, add_special_tokens=request.add_special_tokens
            )
        return await self._encode_prompts(engine_prompts, params, request_id, raw_request, request.priority)

    async def _tokenize(
        self, prompts: Sequence[str | list[int]], truncate_prompt_tokens: int | None, *, add_special_tokens: bool = True
    ) -> list[EnginePrompt]:
        """Return the token ids of texts, or of token ids.

        Raises:
            InvalidRequestError: There are none or too many, or one is invalid or too long.
        """
        if not prompts:
            raise InvalidRequestError("please provide at least one prompt")
        if len(prompts) > _MAX_INPUTS:
            raise InvalidRequestError(
                f"A request may have {_MAX_INPUTS} inputs, got {len(prompts)}. Send several requests."
            )
        max_length = self._max_input_length(truncate_prompt_tokens)
        engine_prompts: list[EnginePrompt] = []
        for prompt in prompts:
            if isinstance(prompt, str):
                engine_prompt = await self.models.async_tokenizer.tokenize(
                    prompt, add_special_tokens=add_special_tokens, max_length=max_length
                )
                await asyncio.sleep(0)  # let other requests run
            else:
                engine_prompt = {"prompt_token_ids": prompt if max_length is None else prompt[-max_length:]}
            engine_prompts.append(engine_prompt)
        return engine_prompts

    def _max_input_length(self, truncate_prompt_tokens: int | None) -> int | None:
        """Return the number of tokens to truncate an input to, or None."""
        if truncate_prompt_tokens is not None and truncate_prompt_tokens > self.max_model_len:
            raise InvalidRequestError(
                "truncate_prompt_tokens value is greater than max_model_len. Please, select a smaller truncation size. "
                f"The model's length is {self.max_model_len}, and -1 stands for it."
            )
        if truncate_prompt_tokens == 0:
            raise InvalidRequestError("truncate_prompt_tokens must be an integer >= 1 or -1, got 0.")
        return self.max_model_len if truncate_prompt_tokens == -1 else truncate_prompt_tokens

    async def _encode_prompts(
        self,
        engine_prompts: Sequence[EnginePrompt],
        params: PoolingParams,
        request_id: str,
        raw_request: Request | None,
        priority: int,
        operation: str = "",
    ) -> list[PoolingRequestOutput[PoolingOutput]]:
        """Return the outputs of tokenized prompts.

        Raises:
            InvalidRequestError: One is too long. As in vLLM, the message has other words with an `operation`.
        """
        options = self._engine_options(raw_request, priority)
        generators = []
        for index, engine_prompt in enumerate(engine_prompts):
            if (num_tokens := len(engine_prompt["prompt_token_ids"])) > self.max_model_len:
                too_long = (
                    f"your request has {num_tokens} input tokens. Please reduce the length of the input messages."
                )
                if operation:
                    too_long = f"you requested {num_tokens} tokens in the input for {operation}. Please reduce the "
                    too_long += "length of the input."
                raise InvalidRequestError(
                    f"This model's maximum context length is {self.max_model_len} tokens. However, {too_long}"
                )
            request_id_item = f"{request_id}-{index}"
            self._log_inputs(request_id_item, engine_prompt, params)
            generators.append(self.engine_client.encode(engine_prompt, params, request_id_item, **options))
        results = {index: output async for index, output in merge_async_iterators(*generators)}
        return [results[index] for index in range(len(engine_prompts))]

    @staticmethod
    def _encoded(
        request: EmbeddingCompletionRequest | EmbeddingChatRequest, output: PoolingRequestOutput[PoolingOutput]
    ) -> Any:
        """Return the result in the requested format."""
        if request.encoding_format == "base64":
            return encode_pooling_output(output.outputs.data, request.embed_dtype, request.endianness)
        return output.outputs.data.tolist()

    @staticmethod
    def _usage_of(outputs: Sequence[PoolingRequestOutput[Any]]) -> UsageInfo:
        """Return the number of prompt tokens. There are no generated ones."""
        num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
        return UsageInfo(prompt_tokens=num_tokens, total_tokens=num_tokens)


def encode_pooling_output(data: Tensor, embed_dtype: EmbedDType, endianness: Endianness) -> str:
    """Return the values in base64, in this dtype and byte order, row by row.

    vLLM: vllm/utils/serial_utils.py::tensor2binary.
    """
    import torch

    names = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
    values = data.to(getattr(torch, names.get(embed_dtype, embed_dtype))).flatten().contiguous()
    content = values.view(torch.uint8).numpy().reshape(-1, values.element_size())
    if endianness not in ("native", sys.byteorder):
        content = content[:, ::-1]
    return base64.b64encode(content.tobytes()).decode()
