"""`OpenAIServingChat`: the answer to a conversation, whole or as a stream of chunks.

vLLM: vllm/entrypoints/openai/serving_chat.py::OpenAIServingChat. Left out: tool calls, reasoning, gpt-oss's harmony
format.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.async_iterators import after_first
from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionLogProbs,
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatCompletionResponseStreamChoice,
    ChatCompletionStreamResponse,
    ChatMessage,
    DeltaMessage,
    ErrorResponse,
)
from tracellm.engine.entrypoints.openai.protocol.base import now
from tracellm.engine.entrypoints.openai.response_logprobs import clamp_prompt_logprobs, create_chat_logprobs
from tracellm.engine.entrypoints.openai.serving_engine import OpenAIServing
from tracellm.engine.entrypoints.openai.serving_models import OpenAIServingModels
from tracellm.engine.entrypoints.openai.tokenizing import EnginePrompt
from tracellm.engine.frontend.async_llm import AsyncLLM
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OpenAIServingChat"]

Conversation = Sequence[dict[str, Any]]


class OpenAIServingChat(OpenAIServing):
    """Serves `/v1/chat/completions`."""

    def __init__(
        self, engine_client: AsyncLLM, models: OpenAIServingModels, response_role: str, **options: Any
    ) -> None:
        """`response_role` is the role of answers; `options` are those of `OpenAIServing`."""
        super().__init__(engine_client, models, **options)
        self.response_role = response_role

    async def create_chat_completion(
        self, request: ChatCompletionRequest, raw_request: Request | None = None
    ) -> AsyncGenerator[str, None] | ChatCompletionResponse | ErrorResponse:
        """Answer a conversation: the whole answer, or with `stream` the events that bring it.

        Raises:
            EngineDeadError: the engine has died.
        """
        if (refused := await self._check_model(request.model)) is not None:
            return refused
        if self.engine_client.errored:
            raise self.engine_client.dead_error
        request_id = f"chatcmpl-{self._base_request_id(raw_request, request.request_id)}"
        try:
            tokenizer = await self.engine_client.get_tokenizer()
            conversation, engine_prompt = await self._render(request, tokenizer)
            asked = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
            max_tokens = self._get_max_tokens(len(engine_prompt["prompt_token_ids"]), asked)
            generate_arguments = await self._process_inputs(
                request_id,
                engine_prompt,
                request.to_sampling_params(max_tokens, self.default_sampling_params),
                trace_headers=None if raw_request is None else self._get_trace_headers(raw_request.headers),
                priority=request.priority,
            )
            result_generator = await after_first(self.engine_client.generate(**generate_arguments))
        except ValueError as error:
            return self._refusal(error)
        maker = self.chat_completion_stream_generator if request.stream else self.chat_completion_full_generator
        answer = maker(request, result_generator, request_id, self.models.model_name(), conversation, tokenizer)
        if isinstance(answer, AsyncGenerator):
            return answer
        try:
            return await answer
        except ValueError as error:
            return self._refusal(error)

    async def _render(
        self, request: ChatCompletionRequest, tokenizer: PreTrainedTokenizerFast
    ) -> tuple[Conversation, EnginePrompt]:
        """The conversation, and the prompt that it makes."""
        if request.tool_choice not in (None, "none"):
            raise InvalidRequestError(
                f"`tool_choice={request.tool_choice!r}` needs a parser that finds calls in the answer, which tracellm "
                'does not have. With `tool_choice="none"` the tools are still told to the model.'
            )
        self._validate_chat_template(request.chat_template, request.chat_template_kwargs)
        return await self._preprocess_chat(
            tokenizer,
            request.messages,
            request.chat_template or self.chat_template,
            self.chat_template_content_format,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            tool_dicts=None if request.tools is None else [tool.model_dump() for tool in request.tools],
            documents=request.documents,
            chat_template_kwargs=request.chat_template_kwargs,
            add_special_tokens=request.add_special_tokens,
            max_length=self._max_length(request),
        )

    def get_chat_request_role(self, request: ChatCompletionRequest) -> str:
        """Whose words the answer is: those of the last message's role, where it is gone on with."""
        role: str = self.response_role if request.add_generation_prompt else request.messages[-1]["role"]
        return role

    def _echoed(self, request: ChatCompletionRequest, conversation: Conversation) -> str:
        """The text of the last message, if the answer begins with it."""
        last = conversation[-1]
        if not request.echo or last["role"] != self.get_chat_request_role(request):
            return ""
        content = last["content"] or ""
        return content if isinstance(content, str) else "\n".join(part["text"] for part in content)

    # -- streams ------------------------------------------------------------------------------------------------------

    async def chat_completion_stream_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncGenerator[RequestOutput, None],
        request_id: str,
        model_name: str,
        conversation: Conversation,
        tokenizer: PreTrainedTokenizerFast,
    ) -> AsyncGenerator[str, None]:
        """The events of a stream: for each answer its role, then what is new of it as it comes, at last the usage."""
        common: dict[str, Any] = {"id": request_id, "object": "chat.completion.chunk", "created": now()}
        include_usage, continuous_usage = request.include_usage(self.enable_force_include_usage)
        num_generated = [0] * request.num_choices
        num_prompt_tokens, num_cached_tokens = 0, None
        begun = False

        def chunk(choices: list[ChatCompletionResponseStreamChoice], so_far: int | None = None, **more: Any) -> str:
            """`so_far`: the tokens generated for this answer, where the usage is to be told."""
            made = ChatCompletionStreamResponse(**common, model=model_name, choices=choices, **more)
            if so_far is not None:
                made.usage = self._usage(num_prompt_tokens, so_far)
            return f"data: {made.model_dump_json(exclude_unset=True, exclude_none=not choices)}\n\n"

        try:
            async for result in result_generator:
                assert result.prompt_token_ids is not None
                num_prompt_tokens = len(result.prompt_token_ids)
                if not begun:
                    begun = True
                    num_cached_tokens = result.num_cached_tokens
                    usage_of_none = 0 if continuous_usage else None
                    prompt_token_ids = result.prompt_token_ids if request.return_token_ids else None
                    role = self.get_chat_request_role(request)
                    for index in range(request.num_choices):
                        delta = DeltaMessage(role=role, content="", reasoning_content=None)
                        yield chunk([_part(index, delta)], usage_of_none, prompt_token_ids=prompt_token_ids)
                    if echoed := self._echoed(request, conversation):
                        for index in range(request.num_choices):
                            delta = DeltaMessage(content=echoed, reasoning_content=None)
                            yield chunk([_part(index, delta)], usage_of_none)
                for output in result.outputs:
                    if not output.text and not output.token_ids and not num_generated[output.index]:
                        continue
                    num_generated[output.index] += len(output.token_ids)
                    so_far = num_generated[output.index] if continuous_usage else None
                    yield chunk([self._stream_choice(request, output, tokenizer)], so_far)
            if include_usage:
                usage = self._usage(num_prompt_tokens, sum(num_generated), num_cached_tokens)
                yield chunk([], usage=usage)
        except Exception as error:
            yield self.create_streaming_error_response(error)
        finally:
            await result_generator.aclose()
        yield "data: [DONE]\n\n"

    def _stream_choice(
        self, request: ChatCompletionRequest, output: CompletionOutput, tokenizer: PreTrainedTokenizerFast
    ) -> ChatCompletionResponseStreamChoice:
        delta = DeltaMessage(content=output.text, reasoning_content=None)
        token_ids = list(output.token_ids) if request.return_token_ids else None
        choice = _part(output.index, delta, self._logprobs(request, output, tokenizer), token_ids=token_ids)
        if output.finish_reason is not None:
            choice.finish_reason = output.finish_reason
            choice.stop_reason = output.stop_reason
        return choice

    # -- whole answers ------------------------------------------------------------------------------------------------

    async def chat_completion_full_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncGenerator[RequestOutput, None],
        request_id: str,
        model_name: str,
        conversation: Conversation,
        tokenizer: PreTrainedTokenizerFast,
    ) -> ChatCompletionResponse:
        """The whole answer, when it is there."""
        result: RequestOutput | None = None
        async for output_so_far in result_generator:
            result = output_so_far
        assert result is not None
        assert result.prompt_token_ids is not None
        role = self.get_chat_request_role(request)
        echoed = self._echoed(request, conversation)
        choices = [
            ChatCompletionResponseChoice(
                index=output.index,
                message=ChatMessage(role=role, content=echoed + output.text),
                logprobs=self._logprobs(request, output, tokenizer),
                finish_reason=output.finish_reason or "stop",
                stop_reason=output.stop_reason,
                token_ids=list(output.token_ids) if request.return_token_ids else None,
            )
            for output in result.outputs
        ]
        num_generated = sum(len(output.token_ids) for output in result.outputs)
        return ChatCompletionResponse(
            id=request_id,
            model=model_name,
            choices=choices,
            usage=self._usage(len(result.prompt_token_ids), num_generated, result.num_cached_tokens),
            prompt_logprobs=clamp_prompt_logprobs(result.prompt_logprobs),
            prompt_token_ids=result.prompt_token_ids if request.return_token_ids else None,
        )

    def _logprobs(
        self, request: ChatCompletionRequest, output: CompletionOutput, tokenizer: PreTrainedTokenizerFast
    ) -> ChatCompletionLogProbs | None:
        if not request.logprobs or request.top_logprobs is None or output.logprobs is None:
            return None
        as_ids = self._as_token_ids(request.return_tokens_as_token_ids)
        return create_chat_logprobs(output.token_ids, output.logprobs, tokenizer, request.top_logprobs, as_ids)


def _part(
    index: int, delta: DeltaMessage, logprobs: ChatCompletionLogProbs | None = None, **more: Any
) -> ChatCompletionResponseStreamChoice:
    """What is new of one answer. Fields that are not given are not sent, so these are, as in vLLM."""
    return ChatCompletionResponseStreamChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=None, **more)
