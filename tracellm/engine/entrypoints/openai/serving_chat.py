"""`OpenAIServingChat`: chat completions, complete or as a stream of chunks.

`message_parser.py` finds reasoning and tool calls in the text.

vLLM: vllm/entrypoints/openai/serving_chat.py::OpenAIServingChat. Left out: gpt-oss's harmony format.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request

from tracellm.engine.entrypoints.openai.async_utils import after_first
from tracellm.engine.entrypoints.openai.message_parser import MessageParser, ParserChoice
from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionLogProbs,
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatCompletionResponseStreamChoice,
    ChatCompletionStreamResponse,
    DeltaMessage,
    ErrorResponse,
    unix_time,
)
from tracellm.engine.entrypoints.openai.serving_engine import OpenAIServing, clamp_prompt_logprobs
from tracellm.engine.entrypoints.openai.serving_models import OpenAIServingModels
from tracellm.engine.frontend.async_llm import AsyncLLM
from tracellm.engine.frontend.outputs import RequestOutput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OpenAIServingChat"]

Conversation = Sequence[dict[str, Any]]


class OpenAIServingChat(OpenAIServing):
    """Serving class of `/v1/chat/completions`."""

    def __init__(
        self,
        engine_client: AsyncLLM,
        models: OpenAIServingModels,
        response_role: str,
        *,
        parsers: ParserChoice,
        **options: Any,
    ) -> None:
        """Serve chat completions.

        Args:
            engine_client: Engine.
            models: Served model names.
            response_role: Role of generated messages.
            parsers: Parsers of reasoning and tool calls.
            options: Those of `OpenAIServing`.
        """
        super().__init__(engine_client, models, **options)
        self.response_role = response_role
        self.parsers = parsers

    async def create_chat_completion(
        self, request: ChatCompletionRequest, raw_request: Request | None = None
    ) -> AsyncGenerator[str, None] | ChatCompletionResponse | ErrorResponse:
        """Return the complete response, or with `stream` a generator of its events.

        Raises:
            EngineDeadError: The engine has died.
        """
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        if self.engine_client.errored:
            raise self.engine_client.dead_error
        request_id = f"chatcmpl-{self._base_request_id(raw_request, request.request_id)}"
        try:
            tokenizer = await self.engine_client.get_tokenizer()
            self.parsers.adjust_request(request)
            conversation, engine_prompt = await self._preprocess_chat(
                request, tokenizer, documents=request.documents, max_length=self._max_length(request)
            )
            requested = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
            max_tokens = self._get_max_tokens(len(engine_prompt["prompt_token_ids"]), requested)
            options = self._engine_options(raw_request, request.priority) | {"cache_salt": request.cache_salt}
            if request.use_beam_search:
                beam_params = request.to_beam_search_params(max_tokens, self.default_sampling_params)
                generator = self.beam_search(engine_prompt, request_id, beam_params, **options)
            else:
                params = request.to_sampling_params(max_tokens, self.default_sampling_params)
                generate_arguments = await self._process_inputs(request_id, engine_prompt, params, **options)
                generator = self.engine_client.generate(**generate_arguments)
            result_generator = await after_first(generator)
            parsers = [
                self.parsers.get_message_parser(request, engine_prompt["prompt"]) for _ in range(request.num_choices)
            ]
            model_name = self.models.model_name()
            arguments = (request, result_generator, request_id, model_name, conversation, tokenizer, parsers)
            if request.stream:
                return self.chat_completion_stream_generator(*arguments)
            return await self.chat_completion_full_generator(*arguments)
        except ValueError as error:
            return self._error_response(error, request)

    def get_chat_request_role(self, request: ChatCompletionRequest) -> str:
        """Return the role of the response: the last message's role when that message is continued."""
        role: str = self.response_role if request.add_generation_prompt else request.messages[-1]["role"]
        return role

    def _echoed_text(self, request: ChatCompletionRequest, conversation: Conversation) -> str:
        """Return the last message's text if the response begins with it, or an empty string."""
        last = conversation[-1]
        if not request.echo or last["role"] != self.get_chat_request_role(request):
            return ""
        content = last["content"] or ""
        return content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)

    # -- streams ------------------------------------------------------------------------------------------------------

    async def chat_completion_stream_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncGenerator[RequestOutput, None],
        request_id: str,
        model_name: str,
        conversation: Conversation,
        tokenizer: PreTrainedTokenizerFast,
        parsers: Sequence[MessageParser],
    ) -> AsyncGenerator[str, None]:
        """Yield the events of a stream: the role of each choice, its deltas, and the usage."""
        common: dict[str, Any] = {"id": request_id, "object": "chat.completion.chunk", "created": unix_time()}
        include_usage, continuous_usage = request.include_usage(self.enable_force_include_usage)
        num_generated = [0] * request.num_choices
        num_prompt_tokens, num_cached_tokens = 0, None
        started = False

        def event(choices: list[ChatCompletionResponseStreamChoice], num_tokens: int = 0, **fields: Any) -> str:
            """Encode a chunk; `num_tokens` of the choice are reported under `continuous_usage`."""
            chunk = ChatCompletionStreamResponse(**common, model=model_name, choices=choices, **fields)
            if continuous_usage and choices:
                chunk.usage = self._usage(num_prompt_tokens, num_tokens)
            return f"data: {chunk.model_dump_json(exclude_unset=True, exclude_none=not choices)}\n\n"

        try:
            async for result in result_generator:
                assert result.prompt_token_ids is not None
                num_prompt_tokens = len(result.prompt_token_ids)
                if not started:
                    started = True
                    num_cached_tokens = result.num_cached_tokens
                    prompt_token_ids = result.prompt_token_ids if request.return_token_ids else None
                    role = self.get_chat_request_role(request)
                    for index in range(request.num_choices):
                        delta = DeltaMessage(role=role, content="")
                        yield event([_stream_choice(index, delta)], prompt_token_ids=prompt_token_ids)
                    if echoed := self._echoed_text(request, conversation):
                        for index in range(request.num_choices):
                            yield event([_stream_choice(index, DeltaMessage(content=echoed))])
                for output in result.outputs:
                    if not output.text and not output.token_ids and not num_generated[output.index]:
                        continue
                    num_generated[output.index] += len(output.token_ids)
                    parser, finished = parsers[output.index], output.finish_reason is not None
                    new_part = parser.parse_delta(output.text, finished=finished)
                    logprobs = self._create_chat_logprobs(request, output, tokenizer)
                    token_ids = list(output.token_ids) if request.return_token_ids else None
                    if new_part is None and not finished and logprobs is None and token_ids is None:
                        continue
                    choice = _stream_choice(output.index, new_part or DeltaMessage(), logprobs, token_ids=token_ids)
                    if output.finish_reason is not None:
                        choice.finish_reason = parser.finish_reason(output.finish_reason)
                        choice.stop_reason = output.stop_reason
                    yield event([choice], num_generated[output.index])
            if include_usage:
                yield event([], usage=self._usage(num_prompt_tokens, sum(num_generated), num_cached_tokens))
        except Exception as error:
            yield self.create_streaming_error_response(error)
        finally:
            await result_generator.aclose()
        yield "data: [DONE]\n\n"

    # -- complete responses -------------------------------------------------------------------------------------------

    async def chat_completion_full_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncGenerator[RequestOutput, None],
        request_id: str,
        model_name: str,
        conversation: Conversation,
        tokenizer: PreTrainedTokenizerFast,
        parsers: Sequence[MessageParser],
    ) -> ChatCompletionResponse:
        """Wait for the final output, and return the complete response."""
        result: RequestOutput | None = None
        async for new_result in result_generator:
            result = new_result
        assert result is not None
        assert result.prompt_token_ids is not None
        role = self.get_chat_request_role(request)
        echoed = self._echoed_text(request, conversation)
        choices: list[ChatCompletionResponseChoice] = []
        for output, parser in zip(result.outputs, parsers, strict=True):
            if choices:
                await asyncio.sleep(0)  # let other requests run
            message = await parser.parse_async(output.text, role)
            if echoed:
                message.content = echoed + (message.content or "")
            choices.append(
                ChatCompletionResponseChoice(
                    index=output.index,
                    message=message,
                    logprobs=self._create_chat_logprobs(request, output, tokenizer),
                    finish_reason=parser.finish_reason(output.finish_reason or "stop"),
                    stop_reason=output.stop_reason,
                    token_ids=list(output.token_ids) if request.return_token_ids else None,
                )
            )
        num_generated = sum(len(output.token_ids) for output in result.outputs)
        return ChatCompletionResponse(
            id=request_id,
            model=model_name,
            choices=choices,
            usage=self._usage(len(result.prompt_token_ids), num_generated, result.num_cached_tokens),
            prompt_logprobs=clamp_prompt_logprobs(result.prompt_logprobs),
            prompt_token_ids=result.prompt_token_ids if request.return_token_ids else None,
        )


def _stream_choice(
    index: int, delta: DeltaMessage, logprobs: ChatCompletionLogProbs | None = None, **fields: Any
) -> ChatCompletionResponseStreamChoice:
    """Return a choice of a chunk. Unset fields are not sent; `logprobs` and `finish_reason` are, as in vLLM."""
    return ChatCompletionResponseStreamChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=None, **fields)
