"""`OpenAIServing`: base class of the serving classes, from a request's fields to the arguments of `AsyncLLM.generate`.

Called once per request by the serving classes. Invalid requests are rejected here or by the `Processor`, before a
response begins.

vLLM: vllm/entrypoints/openai/serving_engine.py::OpenAIServing. Left out: LoRA.
There `_process_inputs` calls the `Processor`, and the engine gets an `EngineCoreRequest`; here
`AsyncLLM.add_request` calls it, as in vLLM's architecture diagram.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from fastapi import Request
from pydantic import BaseModel

from tracellm.engine.config.errors import EngineDeadError, InvalidRequestError, shorten
from tracellm.engine.entrypoints.beam_search import BeamSearchInstance, BeamSearchParams
from tracellm.engine.entrypoints.chat_utils import apply_hf_chat_template, parse_chat_messages, track_items
from tracellm.engine.entrypoints.logger import RequestLogger
from tracellm.engine.entrypoints.openai.async_utils import EnginePrompt, merge_async_iterators
from tracellm.engine.entrypoints.openai.http_responses import error_response
from tracellm.engine.entrypoints.openai.protocol import (
    MAX_ID_LENGTH,
    ChatCompletionLogProb,
    ChatCompletionLogProbs,
    ChatCompletionLogProbsContent,
    ChatCompletionRequest,
    ErrorResponse,
    PromptTokenUsageInfo,
    SamplingRequest,
    UsageInfo,
    random_uuid,
)
from tracellm.engine.entrypoints.openai.serving_models import OpenAIServingModels
from tracellm.engine.entrypoints.openai.tokenize.protocol import TokenizeChatRequest
from tracellm.engine.frontend.async_llm import AsyncLLM
from tracellm.engine.frontend.logprobs import Logprob, PromptLogprobs
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.entrypoints.openai.responses.protocol import ResponsesRequest
    from tracellm.engine.entrypoints.pooling.protocol import EmbeddingChatRequest
    from tracellm.engine.pool.pooling_params import PoolingParams

__all__ = ["OpenAIServing", "clamp_prompt_logprobs", "decoded_token", "finite_logprob"]

_MAX_CHOICES = 1024
"""Maximum number of outputs of one HTTP request."""
_MIN_LOGPROB = -9999.0  # replaces minus infinity, which JSON lacks, as in OpenAI's API
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class OpenAIServing:
    """Base class of the serving classes: checks, prompts, sampling parameters and token counts."""

    def __init__(
        self,
        engine_client: AsyncLLM,
        models: OpenAIServingModels,
        *,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        trust_request_chat_template: bool = False,
        return_tokens_as_token_ids: bool = False,
        enable_prompt_tokens_details: bool = False,
        enable_force_include_usage: bool = False,
        request_logger: RequestLogger | None = None,
    ) -> None:
        """Serve `models` with an engine; the other arguments are those of `ServeArgs`."""
        self.engine_client = engine_client
        self.models = models
        self.chat_template = chat_template
        self.chat_template_content_format = chat_template_content_format
        self.trust_request_chat_template = trust_request_chat_template
        self.return_tokens_as_token_ids = return_tokens_as_token_ids
        self.enable_prompt_tokens_details = enable_prompt_tokens_details
        self.enable_force_include_usage = enable_force_include_usage
        self.request_logger = request_logger
        self.model_config = models.model_config
        self.max_model_len = self.model_config.max_model_len
        self.default_sampling_params = self.model_config.get_diff_sampling_param()

    # -- errors -------------------------------------------------------------------------------------------------------

    def _error_response(
        self, error: ValueError, request: SamplingRequest | ResponsesRequest | None = None
    ) -> ErrorResponse:
        """Return the error response, which names a field of `request` rather than a sampling parameter.

        Raises:
            EngineDeadError: The error is one, and the server ends.
        """
        if isinstance(error, EngineDeadError):
            raise error
        response = error_response(error)
        if request is not None and (param := response.error.param) and (field := request.field_of(param)) != param:
            response.error.param = field
            response.error.message += f" (It is `{field}`.)"
        return response

    def create_streaming_error_response(self, error: Exception) -> str:
        """Return an error as an event, for a stream whose status has been sent."""
        return f"data: {error_response(error).model_dump_json()}\n\n"

    async def _check_model(self, model: str | None) -> ErrorResponse | None:
        """Return an error if the model is not served. An empty name selects the only model."""
        if not model or self.models.is_base_model(model):
            return None
        return self.models.not_found(model)

    def _validate_chat_template(self, request_chat_template: str | None, kwargs: Mapping[str, Any]) -> None:
        """Reject a chat template in the request unless the server trusts it; templates are programs."""
        if "tokenize" in kwargs:
            raise InvalidRequestError(
                "Found unexpected chat template kwargs from request: {'tokenize'}. The server itself uses `tokenize`; "
                "leave it out."
            )
        if self.trust_request_chat_template or (request_chat_template or kwargs.get("chat_template")) is None:
            return
        raise InvalidRequestError(
            "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with "
            "untrusted chat template: `chat_template` is a program."
        )

    # -- prompts ------------------------------------------------------------------------------------------------------

    async def _preprocess_chat(
        self,
        request: ChatCompletionRequest | TokenizeChatRequest | EmbeddingChatRequest,
        tokenizer: PreTrainedTokenizerFast,
        *,
        documents: list[dict[str, str]] | None = None,
        max_length: int | None = None,
        bounded: bool = True,
    ) -> tuple[list[dict[str, Any]], EnginePrompt]:
        """Render the request's conversation with the chat template, and tokenize the text.

        Args:
            request: Request with the messages and the options of the chat template.
            tokenizer: Tokenizer with the model's chat template.
            documents: Documents for the chat template.
            max_length: Maximum number of tokens, the last ones, or the first ones for pooling. None keeps all.
            bounded: Reject a text that is too long for the model before tokenizing it.

        Returns:
            The conversation with all contents in one form, and the prompt.

        Raises:
            InvalidRequestError: A message is invalid, its image or sound cannot be read, the template rejects it, or
                the text is far too long.
        """
        template_kwargs = request.chat_template_kwargs or {}
        self._validate_chat_template(request.chat_template, template_kwargs)
        chat_template = request.chat_template or self.chat_template
        items, content_format = track_items(
            self.engine_client.processor.input_preprocessor.mm_processor,
            self.chat_template_content_format,
            template_kwargs.get("chat_template") or chat_template or tokenizer.chat_template,
        )
        messages = list(request.messages)
        if items is None:
            conversation = parse_chat_messages(messages, content_format)
        else:  # fetching and decoding take time
            conversation = await asyncio.to_thread(parse_chat_messages, messages, content_format, items)
        arguments: dict[str, Any] = {
            "chat_template": chat_template,
            "add_generation_prompt": request.add_generation_prompt,
            "continue_final_message": request.continue_final_message,
            "tools": None if request.tools is None else [tool.model_dump() for tool in request.tools],
            "documents": documents,
            **_reasoning_variables(request),
            **template_kwargs,
        }
        arguments["chat_template"] = arguments["chat_template"] or chat_template  # null keeps --chat-template
        text = apply_hf_chat_template(tokenizer, conversation, **arguments)
        prompt = await self.models.async_tokenizer.tokenize(
            text, add_special_tokens=request.add_special_tokens, max_length=max_length, bounded=bounded
        )
        return conversation, prompt if items is None else prompt | items.prompt_fields()

    def _max_length(self, request: SamplingRequest) -> int | None:
        """Return the number of tokens to truncate the prompt to, or None.

        Raises:
            InvalidRequestError: The number is 0 or exceeds the model's length.
        """
        requested = request.truncate_prompt_tokens
        if requested is not None and (requested == 0 or requested > self.max_model_len):
            words = (
                f"truncate_prompt_tokens={requested} cannot be greater than max_length={self.max_model_len}. Please "
                "select a smaller truncation size."
                if requested
                else "truncate_prompt_tokens must be an integer >= 1 or -1, got 0."
            )
            raise InvalidRequestError(
                f"{words} The model's length (`max_model_len`) is {self.max_model_len}, and -1 stands for it."
            )
        return self.max_model_len if requested == -1 else requested

    @staticmethod
    def _check_num_outputs(num_prompts: int, n: int) -> None:
        """Raise an InvalidRequestError if the request has more outputs than allowed."""
        if num_prompts * n > _MAX_CHOICES:
            raise InvalidRequestError(
                f"`n` is too large: a request may have {_MAX_CHOICES} outputs, and {num_prompts} prompt(s) with n={n} "
                f"make {num_prompts * n}. Send several requests."
            )

    def _check_token_ids(self, token_ids: Sequence[int]) -> None:
        """Raise an InvalidRequestError for an id out of vocabulary."""
        vocab_size = self.model_config.get_vocab_size()
        for position, token_id in enumerate(token_ids):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequestError(
                    f"Token id {shorten(token_id)} is out of vocabulary (at position {position}): "
                    f"this model has the ids 0 to {vocab_size - 1}."
                )

    def _get_max_tokens(self, num_prompt_tokens: int, requested: int | None) -> int:
        """Return the maximum number of tokens to generate after a prompt.

        Clients such as litellm look for the words of the messages, which are vLLM's.

        vLLM: vllm/entrypoints/utils.py::get_max_tokens, and the checks of `_validate_input`.

        Raises:
            InvalidRequestError: Prompt and requested tokens exceed the model's length.
        """
        remaining = self.max_model_len - num_prompt_tokens
        limit = self.max_model_len
        if remaining < 1:
            raise InvalidRequestError(
                f"This model's maximum context length is {limit} tokens. However, your request has "
                f"{num_prompt_tokens} input tokens. Please reduce the length of the input messages. (`max_model_len` "
                "is the length of prompt and output together.)"
            )
        if requested is not None and requested > remaining:
            raise InvalidRequestError(
                f"'max_tokens' or 'max_completion_tokens' is too large: {shorten(requested)}. This model's maximum "
                f"context length is {limit} tokens and your request has {num_prompt_tokens} input tokens "
                f"({shorten(requested)} > {limit} - {num_prompt_tokens}). Shorten the prompt, or ask for fewer."
            )
        limits = (remaining, requested, self.default_sampling_params.get("max_tokens"))
        return min(limit for limit in limits if limit is not None)

    async def _process_inputs(
        self,
        request_id: str,
        engine_prompt: EnginePrompt,
        params: SamplingParams,
        *,
        trace_headers: Mapping[str, str] | None,
        priority: int,
        data_parallel_rank: int | None,
        cache_salt: str | None = None,
    ) -> dict[str, Any]:
        """Return the arguments of `AsyncLLM.generate`.

        Raises:
            InvalidRequestError: The request has more outputs than allowed.
        """
        self._check_num_outputs(1, params.n)
        self._log_inputs(request_id, engine_prompt, params)
        # vLLM adds the truncation; here the prompt is already truncated.
        return {
            "prompt": engine_prompt if cache_salt is None else engine_prompt | {"cache_salt": cache_salt},
            "sampling_params": params,
            "request_id": request_id,
            "trace_headers": trace_headers,
            "priority": priority,
            "data_parallel_rank": data_parallel_rank,
        }

    def _log_inputs(
        self, request_id: str, engine_prompt: EnginePrompt, params: SamplingParams | PoolingParams | BeamSearchParams
    ) -> None:
        if self.request_logger is not None:
            prompt, token_ids = engine_prompt.get("prompt"), engine_prompt.get("prompt_token_ids")
            self.request_logger.log_inputs(request_id, prompt, token_ids, params)

    def _engine_options(self, raw_request: Request | None, priority: int) -> dict[str, Any]:
        """Return the arguments of `AsyncLLM.generate` and `encode` that do not depend on the prompt."""
        return {
            "trace_headers": None if raw_request is None else self._get_trace_headers(raw_request.headers),
            "priority": priority,
            "data_parallel_rank": self._get_data_parallel_rank(raw_request),
        }

    async def beam_search(
        self,
        engine_prompt: EnginePrompt,
        request_id: str,
        params: BeamSearchParams,
        *,
        trace_headers: Mapping[str, str] | None,
        priority: int,
        data_parallel_rank: int | None,
        cache_salt: str | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Search the best outputs, and yield them as one finished output; the arguments are those of `_process_inputs`.

        Each beam is a request for one token. They are aborted when the generator is closed.

        Raises:
            InvalidRequestError: The parameters are invalid, or the server runs without a tokenizer.
        """
        if self.model_config.skip_tokenizer_init:
            raise InvalidRequestError("You cannot use beam search when `skip_tokenizer_init` is True.")
        self._check_num_outputs(1, params.beam_width)
        sampling_params = params.to_sampling_params()
        self._log_inputs(request_id, engine_prompt, params)
        tokenizer = await self.engine_client.get_tokenizer()
        salted = engine_prompt if cache_salt is None else engine_prompt | {"cache_salt": cache_salt}
        search = BeamSearchInstance(salted, params, tokenizer.eos_token_id)
        for _ in range(params.max_tokens):
            step_id = f"{request_id}-{random_uuid()}"
            generators = [
                self.engine_client.generate(
                    beam_prompt,
                    sampling_params,
                    f"{step_id}-beam-{index}",
                    trace_headers=trace_headers,
                    priority=priority,
                    data_parallel_rank=data_parallel_rank,
                )
                for index, beam_prompt in enumerate(search.prompts())
            ]
            outputs = {index: output async for index, output in merge_async_iterators(*generators)}
            search.advance([outputs[index] for index in range(len(generators))])
        yield search.request_output(request_id, engine_prompt.get("prompt"), tokenizer)

    # -- headers ------------------------------------------------------------------------------------------------------

    def _get_trace_headers(self, headers: Mapping[str, str]) -> dict[str, str] | None:
        """Return the client's W3C trace context, or None if it is missing or invalid.

        vLLM passes it on only under --otlp-traces-endpoint.
        """
        traceparent = headers.get("traceparent", "")
        if not _TRACEPARENT.fullmatch(traceparent):
            return None
        trace_headers = {"traceparent": traceparent}
        if tracestate := headers.get("tracestate"):
            trace_headers["tracestate"] = tracestate[:512]  # the length that the standard requires to be propagated
        return trace_headers

    @staticmethod
    def _get_data_parallel_rank(raw_request: Request | None) -> int | None:
        """Return the X-data-parallel-rank header, by which a router chooses the engine core; None if it is no number.

        vLLM: vllm/entrypoints/openai/serving_engine.py::OpenAIServing._get_data_parallel_rank.
        """
        header = "" if raw_request is None else raw_request.headers.get("X-data-parallel-rank", "")
        return int(header) if header.isdecimal() else None

    @staticmethod
    def _base_request_id(raw_request: Request | None, default: str | None = None) -> str:
        """Return the X-Request-Id header, `default`, or a random id."""
        header = None if raw_request is None else raw_request.headers.get("X-Request-Id")
        return header[:MAX_ID_LENGTH] if header else default or random_uuid()

    # -- responses ----------------------------------------------------------------------------------------------------

    def _as_token_ids(self, requested: bool | None) -> bool:
        """Return whether to show tokens as `token_id:17`, since not every token is text."""
        return self.return_tokens_as_token_ids if requested is None else requested

    def _usage(self, num_prompt: int, num_generated: int, num_cached: int | None = None) -> UsageInfo:
        """Return the usage; --enable-prompt-tokens-details adds the prefix cache's tokens."""
        usage = UsageInfo(
            prompt_tokens=num_prompt, completion_tokens=num_generated, total_tokens=num_prompt + num_generated
        )
        if self.enable_prompt_tokens_details and num_cached:
            usage.prompt_tokens_details = PromptTokenUsageInfo(cached_tokens=num_cached)
        return usage

    def _create_chat_logprobs(
        self, request: ChatCompletionRequest, output: CompletionOutput, tokenizer: PreTrainedTokenizerFast
    ) -> ChatCompletionLogProbs | None:
        """Return the log probabilities of the output's tokens and of the `top_logprobs` most likely ones; -1 is all."""
        if not request.logprobs or request.top_logprobs is None or output.logprobs is None:
            return None
        as_token_ids = self._as_token_ids(request.return_tokens_as_token_ids)
        num_top = None if request.top_logprobs == -1 else request.top_logprobs
        content = []
        for token_id, position in zip(output.token_ids, output.logprobs, strict=True):
            sampled = position[token_id]
            top = []
            for top_id, logprob in islice(position.items(), num_top):
                text = decoded_token(top_id, logprob, tokenizer, as_token_ids)
                top.append(ChatCompletionLogProb(token=text, logprob=finite_logprob(logprob), bytes=_utf8(text)))
            content.append(
                ChatCompletionLogProbsContent(
                    token=decoded_token(token_id, sampled, tokenizer, as_token_ids),
                    logprob=finite_logprob(sampled),
                    bytes=None if sampled.decoded_token is None else _utf8(sampled.decoded_token),
                    top_logprobs=top,
                )
            )
        return ChatCompletionLogProbs(content=content)


def _reasoning_variables(request: BaseModel) -> dict[str, Any]:
    """Return the variables of the chat template for the reasoning effort, if the request has one."""
    effort = getattr(request, "reasoning_effort", None)
    return {} if effort is None else {"reasoning_effort": effort, "enable_thinking": effort != "none"}


# -- log probabilities ------------------------------------------------------------------------------------------------


def clamp_prompt_logprobs(prompt_logprobs: PromptLogprobs | None) -> PromptLogprobs | None:
    """Replace minus infinity by -9999 in place."""
    for position in prompt_logprobs or ():
        for logprob in (position or {}).values():
            logprob.logprob = finite_logprob(logprob)
    return prompt_logprobs


def finite_logprob(logprob: Logprob) -> float:
    """Return the log probability, at least -9999."""
    return max(logprob.logprob, _MIN_LOGPROB)


def decoded_token(
    token_id: int, logprob: Logprob | None, tokenizer: PreTrainedTokenizerFast | None, as_token_id: bool
) -> str:
    """Return a token as text, or as `token_id:17`, which needs no tokenizer.

    vLLM: vllm/entrypoints/openai/serving_engine.py::OpenAIServing._get_decoded_token.
    """
    if as_token_id:
        return f"token_id:{token_id}"
    if logprob is not None and logprob.decoded_token is not None:
        return logprob.decoded_token
    assert tokenizer is not None
    return tokenizer.decode([token_id])


def _utf8(text: str) -> list[int]:
    return list(text.encode(errors="replace"))
